//! Paths in the files of a crate, by their tokens, and the files that these lead to.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::TokenTree::{self, Group, Ident, Literal, Punct};
use proc_macro2::{Delimiter, Spacing, Span, TokenStream};
use syn::UseTree;

/// Marks a file, and the modules below it, that do no I/O and know neither time nor chance: clippy refuses such calls.
pub(super) const PURE: &str =
    "#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]";

/// A path: from the root of this crate with `crate` as its first name, otherwise as a file has it.
type Names = Vec<String>;

/// The files of a crate, by their modules. Imports of everything, `*`, are left to clippy, which allows none.
#[derive(Default)]
pub(super) struct Source {
    pub(super) files: BTreeMap<Names, File>,
    test_modules: BTreeSet<Names>,
}

#[derive(Default)]
pub(super) struct File {
    /// Relative to `src/`.
    pub(super) name: String,
    pub(super) is_pure: bool,
    pub(super) mentions: Vec<Mention>,
    imports: BTreeMap<String, Names>,
}

/// A path in a file.
pub(super) struct Mention {
    pub(super) path: Names,
    pub(super) line: usize,
    pub(super) is_test: bool,
    /// `pub use` passes a name on, and needs nothing of it.
    pub(super) is_reexport: bool,
}

/// Where a reader is: in a file's module, or in a module within the file.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a [String],
    module: &'a [String],
    is_test: bool,
}

impl Source {
    /// Reads files with these paths relative to `src/`.
    pub(super) fn parse<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut source = Self::default();
        for (name, text) in files {
            let path = name.trim_end_matches(".rs").trim_end_matches("/mod");
            let below = path.split('/').filter(|part| *part != "lib");
            let module: Names = ["crate"].into_iter().chain(below).map(str::to_owned).collect();
            let is_pure = text.contains(PURE);
            let file = File { name: name.to_owned(), is_pure, ..File::default() };
            source.files.insert(module.clone(), file);
            let tokens = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            source.walk(tokens, Place { file: &module, module: &module, is_test: false });
        }
        source.complete();
        source
    }

    /// Puts the crate's root before paths that begin at a child or an import, and marks what is below tests and pure
    /// files.
    fn complete(&mut self) {
        let modules: BTreeSet<Names> = self.files.keys().cloned().collect();
        let mut pure = modules.clone();
        pure.retain(|module| self.files[module].is_pure);
        for (module, file) in &mut self.files {
            let is_below =
                |set: &BTreeSet<Names>| (1..=module.len()).any(|to| set.contains(&module[..to]));
            file.is_pure = is_below(&pure);
            let is_test = is_below(&self.test_modules);
            let from_root = |path: &mut Names, imports: &BTreeMap<String, Names>| {
                let child = [&module[..], &path[..1]].concat();
                if modules.contains(&child) {
                    *path = [&child, &path[1..]].concat();
                } else if let Some(import) = imports.get(&path[0]) {
                    *path = [import, &path[1..]].concat();
                }
            };
            file.imports.values_mut().for_each(|path| from_root(path, &BTreeMap::new()));
            for mention in &mut file.mentions {
                from_root(&mut mention.path, &file.imports);
                mention.is_test |= is_test;
            }
        }
    }

    fn walk(&mut self, tokens: TokenStream, outside: Place<'_>) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let (mut place, mut is_public, mut at) = (outside, false, 0);
        while let Some(token) = tokens.get(at) {
            at += 1;
            let is_end = match token {
                Group(group) => {
                    let text = group.stream().to_string().replace(' ', "");
                    place.is_test |= text == "cfg(test)" || text == "test";
                    self.walk(group.stream(), place);
                    group.delimiter() == Delimiter::Brace
                }
                Ident(word) if word == "pub" => {
                    is_public = true;
                    // Who may see a name is not a use.
                    at += usize::from(matches!(tokens.get(at), Some(Group(_))));
                    false
                }
                Ident(word) if word == "mod" => {
                    let module = [place.module, &[tokens[at].to_string()]].concat();
                    if place.is_test {
                        self.test_modules.insert(module.clone());
                    }
                    if let Group(content) = &tokens[at + 1] {
                        self.walk(content.stream(), Place { module: &module, ..place });
                    }
                    at += 2;
                    true
                }
                Ident(word) if word == "use" && tokens[at].to_string() != "<" => {
                    let tree = tokens[at..].iter().take_while(|token| token.to_string() != ";");
                    let tree: Vec<_> = tree.cloned().collect();
                    at += tree.len();
                    let tree = syn::parse2(tree.into_iter().collect()).expect("an import");
                    self.import(&[], &tree, place, is_public);
                    false
                }
                Ident(word) => {
                    let mut path = vec![word.to_string()];
                    while let [Punct(colon), Punct(_), Ident(next), ..] = &tokens[at..]
                        && (colon.as_char(), colon.spacing()) == (':', Spacing::Joint)
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    if path.len() > 1 {
                        self.mention(path, token.span(), place, false);
                    }
                    false
                }
                Punct(punct) => punct.as_char() == ';',
                Literal(_) => false,
            };
            if is_end {
                (place, is_public) = (outside, false);
            }
        }
    }

    fn import(&mut self, prefix: &[String], tree: &UseTree, place: Place<'_>, is_public: bool) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        let (path, name, at) = match tree {
            UseTree::Path(it) => return self.import(&with(&it.ident), &it.tree, place, is_public),
            UseTree::Group(group) => {
                return group.items.iter().for_each(|it| self.import(prefix, it, place, is_public));
            }
            UseTree::Name(it) if it.ident == "self" => (prefix.to_vec(), prefix.last(), &it.ident),
            UseTree::Name(it) => (with(&it.ident), None, &it.ident),
            UseTree::Rename(it) => (with(&it.ident), None, &it.rename),
            UseTree::Glob(_) => return,
        };
        let name = name.cloned().unwrap_or_else(|| at.to_string());
        let path = self.mention(path, at.span(), place, is_public);
        self.files.get_mut(place.file).expect("the file that is read").imports.insert(name, path);
    }

    fn mention(&mut self, names: Names, at: Span, place: Place<'_>, is_reexport: bool) -> Names {
        let supers = names.iter().take_while(|name| *name == "super").count();
        let path = match &names[0][..] {
            "super" => [&place.module[..place.module.len() - supers], &names[supers..]].concat(),
            "self" => [place.module, &names[1..]].concat(),
            _ => names,
        };
        let line = at.start().line;
        let mention = Mention { path: path.clone(), line, is_test: place.is_test, is_reexport };
        self.files.get_mut(place.file).expect("the file that is read").mentions.push(mention);
        path
    }

    /// The file of this crate that defines what a path leads to, through re-exports, and its name there. Modules as a
    /// whole and other crates have none.
    pub(super) fn target(&self, path: &[String]) -> Option<(&File, String)> {
        let depth = (1..path.len()).rev().find(|to| self.files.contains_key(&path[..*to]))?;
        let (file, name) = (&self.files[&path[..depth]], &path[depth]);
        match file.imports.get(name) {
            Some(import) if import[..] != *path => {
                self.target(&[import, &path[depth + 1..]].concat())
            }
            _ => (!self.files.contains_key(path)).then(|| (file, name.clone())),
        }
    }
}
