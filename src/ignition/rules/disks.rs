//! Disks and their partitions, RAID arrays and file systems.
//!
//! Sources: the specs' sections `storage.disks`, `storage.raid` and `storage.filesystems`.

use std::collections::HashSet;

use super::super::error::At;
use super::super::fields::Spec;
use super::super::spec3::{Disk, Filesystem, Partition, Raid, Storage};
use super::{Checked, all_unique, check_path, resource, says};

/// The formats of file systems, and the first spec that has each.
const FORMATS: &[(&str, Spec)] = &[
    ("ext4", (2, 0)),
    ("btrfs", (2, 0)),
    ("xfs", (2, 0)),
    ("swap", (2, 1)),
    ("vfat", (2, 1)),
    ("none", (3, 3)),
];

/// The longest label of each format in bytes, from the manuals of mkfs.
const LABELS: &[(&str, usize)] =
    &[("ext4", 16), ("btrfs", 256), ("xfs", 12), ("swap", 15), ("vfat", 11)];

/// The longest label of a partition, GPT's 36 UTF-16 code units.
const PARTITION_LABEL_MAX: usize = 36;

pub(super) fn check(storage: &Storage, spec: Spec, at: &At<'_>) -> Checked {
    let disks_at = at.field("disks");
    for (i, disk) in storage.disks.iter().enumerate() {
        check_disk(disk, spec, &disks_at.item(i))?;
    }
    all_unique(&storage.disks, &disks_at, |disk| &disk.device)?;

    let raid_at = at.field("raid");
    for (i, raid) in storage.raid.iter().enumerate() {
        check_raid(raid, &raid_at.item(i))?;
    }
    all_unique(&storage.raid, &raid_at, |raid| &raid.name)?;

    let filesystems_at = at.field("filesystems");
    for (i, filesystem) in storage.filesystems.iter().enumerate() {
        check_filesystem(filesystem, spec, &filesystems_at.item(i))?;
    }
    all_unique(&storage.filesystems, &filesystems_at, |filesystem| &filesystem.device)
}

fn check_disk(disk: &Disk, spec: Spec, at: &At<'_>) -> Checked {
    check_path(&disk.device, &at.field("device"))?;
    let at = at.field("partitions");
    let partitions = &disk.partitions;
    for (i, partition) in partitions.iter().enumerate() {
        check_partition(partition, &at.item(i))?;
    }
    check_numbers(partitions.iter().map(|partition| partition.number), &at)?;
    let mut labels = HashSet::new();
    for (i, partition) in partitions.iter().enumerate() {
        if partition.label.as_ref().is_some_and(|label| !labels.insert(label)) {
            return Err(at.item(i).field("label").invalid("is there twice on its disk"));
        }
    }
    // Up to 3.5 Ignition saw a danger in numbers that are chosen while partitions are deleted.
    let deletes = partitions.iter().any(|partition| partition.should_exist == Some(false));
    if spec <= (3, 5) && deletes && partitions.iter().any(|partition| partition.number == 0) {
        return Err(
            at.invalid("one is to be deleted and another has no number, which needs spec 3.6")
        );
    }
    check_overlap(partitions, &at)
}

/// Partition numbers but for 0, the next free one, are unique.
pub(super) fn check_numbers(numbers: impl Iterator<Item = i64>, at: &At<'_>) -> Checked {
    let mut seen = HashSet::new();
    for (i, number) in numbers.enumerate() {
        if number != 0 && !seen.insert(number) {
            return Err(at.item(i).field("number").invalid("is there twice on its disk"));
        }
    }
    Ok(())
}

fn check_partition(partition: &Partition, at: &At<'_>) -> Checked {
    let describes = partition.label.is_some()
        || says(partition.type_guid.as_ref())
        || says(partition.guid.as_ref())
        || partition.start_mib.is_some()
        || partition.size_mib.is_some();
    if partition.should_exist == Some(false) && describes {
        return Err(at.field("shouldExist").invalid("is false, but the partition is described"));
    }
    if partition.number == 0 && partition.label.is_none() {
        return Err(at.invalid("has neither a number nor a label"));
    }
    if let Some(label) = &partition.label {
        check_partition_label(label, at)?;
        if label.contains(':') {
            return Err(at.field("label").invalid("contains a colon, which sgdisk cannot take"));
        }
    }
    check_guid(partition.guid.as_deref().unwrap_or_default(), &at.field("guid"))?;
    check_guid(partition.type_guid.as_deref().unwrap_or_default(), &at.field("typeGuid"))
}

pub(super) fn check_partition_label(label: &str, at: &At<'_>) -> Checked {
    if label.len() > PARTITION_LABEL_MAX {
        return Err(at
            .field("label")
            .invalid(format!("is longer than {PARTITION_LABEL_MAX} bytes")));
    }
    Ok(())
}

/// Empty, or hexadecimal digits in groups of 8, 4, 4, 4 and 12.
pub(super) fn check_guid(guid: &str, at: &At<'_>) -> Checked {
    let groups = guid
        .split('-')
        .map(|group| group.bytes().all(|b| b.is_ascii_hexdigit()).then_some(group.len()));
    if guid.is_empty() || groups.eq([8, 4, 4, 4, 12].map(Some)) {
        Ok(())
    } else {
        Err(at.invalid(format!("{guid:?} is not of the form 01234567-89AB-CDEF-EDCB-A98765432101")))
    }
}

/// No two partitions share a MiB. Those that start at 0 go wherever there is room.
fn check_overlap(partitions: &[Partition], at: &At<'_>) -> Checked {
    let extent = |partition: &Partition| {
        let (start, size) = (partition.start_mib?, partition.size_mib?);
        // A size of 0 fills the space there is: only its start is known.
        let end = if size == 0 { start } else { start.wrapping_add(size).wrapping_sub(1) };
        (start != 0).then_some((start, end))
    };
    for (i, one) in partitions.iter().enumerate() {
        let Some((start, end)) = extent(one) else { continue };
        for other in partitions.iter().enumerate().filter(|&(k, _)| k != i).map(|(_, other)| other)
        {
            let Some((other_start, other_end)) = extent(other) else { continue };
            let within = |point| point >= other_start && point <= other_end;
            if within(start) || within(end) || (start < other_start && end > other_end) {
                return Err(at.item(i).invalid("overlaps with another partition"));
            }
        }
    }
    Ok(())
}

fn check_raid(raid: &Raid, at: &At<'_>) -> Checked {
    check_raid_level(raid.level.as_deref().unwrap_or_default(), raid.spares.unwrap_or(0), at)?;
    let at = at.field("devices");
    if raid.devices.is_empty() {
        return Err(at.invalid("are missing"));
    }
    for (i, device) in raid.devices.iter().enumerate() {
        check_path(device, &at.item(i))?;
    }
    all_unique(&raid.devices, &at, String::as_str)
}

/// A level of md(4); without redundancy there is nothing to spare.
pub(super) fn check_raid_level(level: &str, spares: i64, at: &At<'_>) -> Checked {
    match level {
        "linear" | "raid0" | "0" | "stripe" if spares == 0 => Ok(()),
        "linear" | "raid0" | "0" | "stripe" => {
            Err(at.field("spares").invalid(format!("level {level} has none")))
        }
        "raid1" | "1" | "mirror" | "raid4" | "4" | "raid5" | "5" | "raid6" | "6" | "raid10"
        | "10" => Ok(()),
        "" => Err(at.field("level").invalid("is missing")),
        _ => Err(at.field("level").invalid(format!("{level:?} is not a RAID level"))),
    }
}

fn check_filesystem(filesystem: &Filesystem, spec: Spec, at: &At<'_>) -> Checked {
    check_path(&filesystem.device, &at.field("device"))?;
    if let Some(path) = filesystem.path.as_ref().filter(|path| !path.is_empty()) {
        check_path(path, &at.field("path"))?;
    }
    let describes = says(filesystem.path.as_ref())
        || says(filesystem.label.as_ref())
        || says(filesystem.uuid.as_ref())
        || filesystem.wipe_filesystem == Some(true)
        || !filesystem.mount_options.is_empty()
        || !filesystem.options.is_empty();
    match filesystem.format.as_deref().unwrap_or_default() {
        "" if describes => {
            Err(at.field("format").invalid("is missing from a file system that is described"))
        }
        "" => Ok(()),
        format => {
            check_format(format, spec, &at.field("format"))?;
            check_label(format, filesystem.label.as_deref(), at)
        }
    }
}

pub(super) fn check_format(format: &str, spec: Spec, at: &At<'_>) -> Checked {
    match FORMATS.iter().find(|(name, _)| *name == format) {
        Some(&(_, since)) if spec < since => Err(resource::needs(at, format, since)),
        Some(_) => Ok(()),
        None => Err(at.invalid(format!("{format:?} is not a file system that Ignition makes"))),
    }
}

pub(super) fn check_label(format: &str, label: Option<&str>, at: &At<'_>) -> Checked {
    let limit = LABELS.iter().find(|(name, _)| *name == format);
    match (label, limit) {
        (Some(label), Some(&(_, limit))) if label.len() > limit => Err(at
            .field("label")
            .invalid(format!("is longer than the {limit} bytes that {format} has"))),
        _ => Ok(()),
    }
}
