//! Steps of people and programs, and the choice of the next one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::random::Random;
use super::site::{
    Content, File, Id, InPlace, LINKED, Objects, PLAIN, Site, State, ids, is_machine, is_plain,
    names,
};

/// How a program writes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// An editor writes a whole new file and renames it into place.
    EditorRenames,
    /// rsync writes a hidden file, which is there for a while, and renames it into place.
    RsyncRenames,
    /// A program writes in place in two parts, and the kernel tells that it writes.
    WriterIsSeen,
    /// The same where nobody tells, as on a network file system. The first part is not YAML.
    WriterIsUnseen,
    /// git deletes a file before it writes it.
    GitDeletesFirst,
    /// A shell's redirection empties a file before it is written.
    ShellEmptiesFirst,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Write {
        file: PathBuf,
        way: Way,
        objects: Objects,
    },
    /// An administrator deletes a file alone.
    Delete(PathBuf),
    /// An accident deletes several files at once, or an administrator does.
    DeleteSeveral(Vec<PathBuf>),
    /// An administrator moves an object to another file.
    Move {
        id: Id,
        from: PathBuf,
        to: PathBuf,
        is_added_first: bool,
    },
    /// git deletes several files, and writes them again at once but for those that the other branch does not have.
    Checkout {
        files: Vec<(PathBuf, Option<Objects>)>,
        is_restarted: bool,
    },
    /// An accident.
    Damage(PathBuf, State),
    /// An administrator restores what was meant.
    Repair(PathBuf),
    /// A mount is late, or another one is in its place.
    LoseDirectory(InPlace),
    ReturnDirectory,
    HideFolder,
    ReturnFolder,
    /// kubelet swaps its link.
    SwapData(Objects),
    /// Config management replaces the directory by a new one, with a file changed or without it.
    RollOut(PathBuf, Option<Objects>),
    /// An administrator runs `machines remove`.
    RemoveCommand(Id),
    /// An administrator runs `machines rearm`.
    RearmCommand(Id),
    Boot {
        machine: Id,
        is_delivered: bool,
    },
    Restart,
    /// The server stops; these are done before another one starts.
    WhileDown(Vec<Step>),
    /// The server is killed after the first of these and before it has stored what the files said; the others follow
    /// before another one starts.
    Kill(Vec<Step>),
    Pass(Duration),
}

/// Chooses a step that can be done at present.
pub(super) fn choose(random: &mut Random, site: &mut Site, current: &[Id]) -> Step {
    loop {
        let step = match random.below(20) {
            0 => Some(Step::Pass(Duration::from_millis(200))),
            1 => Some(Step::Pass(Duration::from_secs(1))),
            2 => Some(Step::Pass(Duration::from_secs(61 * 60))),
            3 => Some(Step::Restart),
            4 => file_step(random, site).map(|step| Step::WhileDown(vec![step])),
            5 => kill(random, site),
            6 => command(random, site, current),
            7 | 8 => random
                .pick(current)
                .map(|machine| Step::Boot { machine, is_delivered: random.below(3) > 0 }),
            _ => file_step(random, site),
        };
        if let Some(step) = step {
            return step;
        }
    }
}

/// A kill, and perhaps an accident before the next start.
fn kill(random: &mut Random, site: &mut Site) -> Option<Step> {
    let (file, objects) = written(random, site)?;
    let first = match random.below(3) {
        0 if site.own()?.files.contains_key(&file) => Step::Delete(file.clone()),
        _ => Step::Write { file: file.clone(), way: Way::EditorRenames, objects },
    };
    let then = match (&first, random.below(2)) {
        (Step::Write { .. }, 1) => Some(Step::Damage(file, damaged(random))),
        _ => None,
    };
    Some(Step::Kill([Some(first), then].into_iter().flatten().collect()))
}

fn command(random: &mut Random, site: &mut Site, current: &[Id]) -> Option<Step> {
    let machine = random.pick(current)?;
    match random.below(3) {
        0 => Some(Step::RearmCommand(machine)),
        1 => Some(Step::RemoveCommand(machine)),
        _ => {
            let before = damage(random, site).into_iter();
            let steps = before.chain([Step::RemoveCommand(machine)]);
            Some(Step::WhileDown(steps.collect()))
        }
    }
}

/// A step that changes files.
fn file_step(random: &mut Random, site: &mut Site) -> Option<Step> {
    if site.is_lost() {
        return Some(Step::ReturnDirectory).filter(|_| random.below(2) == 0);
    }
    match random.below(20) {
        0..=5 => {
            let (file, objects) = written(random, site)?;
            Some(Step::Write { file, way: random.pick(&WAYS)?, objects })
        }
        6 => Some(Step::Delete(any_file(random, site)?)),
        18 => {
            let files = site.own()?.files.keys().filter(|_| random.below(3) > 0);
            Some(Step::DeleteSeveral(files.cloned().collect()))
        }
        7 => move_object(random, site),
        8 => checkout(random, site),
        9 | 10 => damage(random, site),
        11 | 12 => Some(Step::Repair(any_damaged(random, site)?)),
        13 | 14 => {
            let in_place = [InPlace::Nothing, InPlace::EmptyDirectory, InPlace::WrongDirectory];
            let lost = Step::LoseDirectory(random.pick(&in_place)?);
            Some(lost).filter(|_| !site.is_folder_hidden())
        }
        15 | 16 if site.is_folder_hidden() => Some(Step::ReturnFolder),
        15 => Some(Step::HideFolder),
        16 | 17 => {
            let file = PathBuf::from(LINKED);
            let before = site.own()?.files.get(&file)?.objects.clone();
            Some(Step::SwapData(changed(random, site, before)))
        }
        _ => {
            let file = any_file(random, site)?;
            let before = site.own()?.files[&file].objects.clone();
            let objects = changed(random, site, before);
            let objects = Some(objects).filter(|_| random.below(3) > 0);
            Some(Step::RollOut(file, objects)).filter(|_| !site.is_folder_hidden())
        }
    }
}

const WAYS: [Way; 6] = [
    Way::EditorRenames,
    Way::RsyncRenames,
    Way::WriterIsSeen,
    Way::WriterIsUnseen,
    Way::GitDeletesFirst,
    Way::ShellEmptiesFirst,
];

fn any_file(random: &mut Random, site: &Site) -> Option<PathBuf> {
    let files: Vec<_> = site.own()?.files.keys().cloned().collect();
    random.pick(&files)
}

fn any_damaged(random: &mut Random, site: &Site) -> Option<PathBuf> {
    let files = site.own()?.files.iter().filter(|(_, file)| file.state != State::Valid);
    let files: Vec<_> = files.map(|(path, _)| path.clone()).collect();
    random.pick(&files)
}

fn damage(random: &mut Random, site: &Site) -> Option<Step> {
    Some(Step::Damage(any_file(random, site)?, damaged(random)))
}

fn damaged(random: &mut Random) -> State {
    let states = [State::Invalid, State::Empty, State::Dangling, State::Comment];
    random.pick(&states).unwrap_or(State::Empty)
}

/// A file with what it says next.
fn written(random: &mut Random, site: &mut Site) -> Option<(PathBuf, Objects)> {
    let file = random.pick(&names())?;
    let tree = site.own()?;
    if !tree.folders.contains_key(file.parent()?) {
        return None;
    }
    if let Some(File { objects, .. }) = tree.files.get(&file).cloned() {
        let objects = changed(random, site, objects);
        return Some((file, objects));
    }
    // The same names with another content.
    let unused = site.unused_of(&file);
    let objects: Vec<_> = unused.into_iter().map(|id| (id, site.new_content(id, "p-x"))).collect();
    Some((file, objects)).filter(|(_, objects)| !objects.is_empty())
}

/// Contents of a file after a change.
fn changed(random: &mut Random, site: &mut Site, mut objects: Objects) -> Objects {
    let at = random.index(objects.len());
    let (id, Content { pool, .. }) = objects[at];
    match random.below(6) {
        0 if objects.len() > 1 => drop(objects.remove(at)),
        1 if id != PLAIN => {
            let meant = site.meant();
            let is_unused = |id: &Id| meant.iter().all(|(meant, _)| meant != id) && *id != PLAIN;
            let unused: Vec<_> = ids().filter(is_unused).collect();
            if let Some(id) = random.pick(&unused) {
                objects.push((id, site.new_content(id, "p-y")));
            }
        }
        // It is written again as it is.
        2 => {}
        3 if is_machine(id) => {
            let other = if pool == "p-x" { "p-y" } else { "p-x" };
            objects[at].1 = site.new_content(id, other);
        }
        _ => objects[at].1 = site.new_content(id, pool),
    }
    objects
}

fn move_object(random: &mut Random, site: &Site) -> Option<Step> {
    let files = site.own()?.files.iter();
    let valid = files.filter(|(path, file)| file.state == State::Valid && !is_plain(path));
    let valid: Vec<_> = valid.map(|(path, file)| (path.clone(), file.objects.clone())).collect();
    let (from, objects) = random.pick(&valid)?;
    let (to, _) = random.pick(&valid)?;
    let (id, _) = objects[random.index(objects.len())];
    let is_added_first = random.below(2) == 0;
    Some(Step::Move { id, from, to, is_added_first })
        .filter(|it| !matches!(it, Step::Move { from, to, .. } if from == to))
}

fn checkout(random: &mut Random, site: &mut Site) -> Option<Step> {
    let files: Vec<_> =
        site.own()?.files.iter().map(|(path, file)| (path.clone(), file.objects.clone())).collect();
    let is_without = random.below(4) == 0;
    let mut chosen = Vec::new();
    for (path, objects) in files {
        if random.below(2) == 0 {
            let objects = if chosen.is_empty() && is_without {
                None
            } else {
                let bumped = objects.into_iter();
                Some(bumped.map(|(id, it)| (id, site.new_content(id, it.pool))).collect())
            };
            chosen.push((path, objects));
        }
    }
    let is_restarted = random.below(4) == 0;
    Some(Step::Checkout { files: chosen, is_restarted })
}

/// Does the steps that take one moment.
pub(super) fn is_done_at_once(site: &mut Site, step: &Step) -> bool {
    match step.clone() {
        Step::Delete(file) => drop(site.remove(&file)),
        Step::DeleteSeveral(files) => {
            for file in files {
                site.remove(&file);
            }
        }
        Step::Damage(file, state) => site.damage(&file, state),
        Step::Repair(file) => site.repair(&file),
        Step::LoseDirectory(in_place) => site.lose_directory(in_place),
        Step::ReturnDirectory => site.return_directory(),
        Step::HideFolder => site.hide_folder(),
        Step::ReturnFolder => site.return_folder(),
        Step::SwapData(objects) => site.swap_data(objects),
        Step::RollOut(file, objects) => site.roll_out(|files| match objects {
            Some(objects) => drop(files.insert(file, File { state: State::Valid, objects })),
            None => drop(files.remove(&file)),
        }),
        _ => return false,
    }
    true
}

/// The manifest that `machines add` writes, and `machines remove` deletes.
pub(super) fn manifest_of(machine: Id) -> PathBuf {
    Path::new(&format!("machine-{machine}.yaml")).to_owned()
}
