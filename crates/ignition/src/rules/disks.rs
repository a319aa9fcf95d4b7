//! Disks and their partitions, RAID arrays and file systems.
//!
//! Sources: the specs' sections `storage.disks`, `storage.raid` and `storage.filesystems`.

use std::collections::HashSet;
use std::hash::Hash;

use super::super::error::FieldPath;
use super::super::fields::Spec;
use super::super::spec3::{Disk, Filesystem, Partition, Raid, Storage};
use super::common::{Checked, all_unique, check_path, each, says};
use super::resource;

/// Formats of file systems, with the first spec of each.
const FORMATS: &[(&str, Spec)] = &[
    ("ext4", (2, 0)),
    ("btrfs", (2, 0)),
    ("xfs", (2, 0)),
    ("swap", (2, 1)),
    ("vfat", (2, 1)),
    ("none", (3, 3)),
];

/// Maximum label of each format in bytes, from the manuals of mkfs.
const LABELS: &[(&str, usize)] =
    &[("ext4", 16), ("btrfs", 256), ("xfs", 12), ("swap", 15), ("vfat", 11)];

/// Maximum label of a partition: GPT's 36 UTF-16 code units.
const PARTITION_LABEL_MAX: usize = 36;

pub(super) fn check(storage: &Storage, spec: Spec, at: &FieldPath<'_>) -> Checked {
    let disks_at = at.field("disks");
    each(&storage.disks, &disks_at, |disk, at| check_disk(disk, spec, at))?;
    all_unique(&storage.disks, &disks_at, |disk| &disk.device)?;

    let raid_at = at.field("raid");
    each(&storage.raid, &raid_at, check_raid)?;
    all_unique(&storage.raid, &raid_at, |raid| &raid.name)?;

    let filesystems_at = at.field("filesystems");
    each(&storage.filesystems, &filesystems_at, |it, at| check_filesystem(it, spec, at))?;
    all_unique(&storage.filesystems, &filesystems_at, |filesystem| &filesystem.device)
}

fn check_disk(disk: &Disk, spec: Spec, at: &FieldPath<'_>) -> Checked {
    check_path(&disk.device, &at.field("device"))?;
    let at = at.field("partitions");
    let partitions = &disk.partitions;
    each(partitions, &at, check_partition)?;
    check_numbers(partitions.iter().map(|partition| partition.number), &at)?;
    check_unique_on_disk(partitions.iter().map(|it| it.label.as_ref()), "label", &at)?;
    // Ignition removed this rule in a release that reads 3.6; releases that only read up to 3.5 have it.
    let deletes = partitions.iter().any(|partition| partition.should_exist == Some(false));
    if spec <= (3, 5) && deletes && partitions.iter().any(|partition| partition.number == 0) {
        return Err(
            at.invalid("one must be deleted and another has no number, which needs spec 3.6")
        );
    }
    check_overlap(partitions, &at)
}

/// Checks that partition numbers are unique, except 0, which means the next free one.
pub(super) fn check_numbers(numbers: impl Iterator<Item = i64>, at: &FieldPath<'_>) -> Checked {
    check_unique_on_disk(numbers.map(|number| (number != 0).then_some(number)), "number", at)
}

/// Checks that no two partitions have the same value of a field.
fn check_unique_on_disk<T: Hash + Eq>(
    mut values: impl Iterator<Item = Option<T>>,
    field: &str,
    at: &FieldPath<'_>,
) -> Checked {
    let mut seen = HashSet::new();
    match values.position(|value| value.is_some_and(|value| !seen.insert(value))) {
        Some(i) => Err(at.item(i).field(field).invalid("appears twice on its disk")),
        None => Ok(()),
    }
}

fn check_partition(partition: &Partition, at: &FieldPath<'_>) -> Checked {
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

pub(super) fn check_partition_label(label: &str, at: &FieldPath<'_>) -> Checked {
    if label.len() > PARTITION_LABEL_MAX {
        return Err(at
            .field("label")
            .invalid(format!("is longer than {PARTITION_LABEL_MAX} bytes")));
    }
    Ok(())
}

/// Checks for an empty text, or hexadecimal digits in groups of 8, 4, 4, 4 and 12.
pub(super) fn check_guid(guid: &str, at: &FieldPath<'_>) -> Checked {
    let groups = guid
        .split('-')
        .map(|group| group.bytes().all(|b| b.is_ascii_hexdigit()).then_some(group.len()));
    if guid.is_empty() || groups.eq([8, 4, 4, 4, 12].map(Some)) {
        Ok(())
    } else {
        Err(at.invalid(format!("{guid:?} is not of the form 01234567-89AB-CDEF-EDCB-A98765432101")))
    }
}

/// Checks that no two partitions share a MiB. Those that start at 0 are placed in free space.
fn check_overlap(partitions: &[Partition], at: &FieldPath<'_>) -> Checked {
    let extent = |partition: &Partition| {
        let (start, size) = (partition.start_mib?, partition.size_mib?);
        // A size of 0 fills the free space: only its start is known.
        let end = if size == 0 { start } else { start.wrapping_add(size).wrapping_sub(1) };
        (start != 0).then_some((start, end))
    };
    for (i, one) in partitions.iter().enumerate() {
        let Some((start, end)) = extent(one) else { continue };
        let others = partitions.iter().enumerate().filter(|&(k, _)| k != i);
        let overlaps = others.filter_map(|(_, other)| extent(other)).any(|(first, last)| {
            let within = |point| point >= first && point <= last;
            within(start) || within(end) || (start < first && end > last)
        });
        if overlaps {
            return Err(at.item(i).invalid("overlaps with another partition"));
        }
    }
    Ok(())
}

fn check_raid(raid: &Raid, at: &FieldPath<'_>) -> Checked {
    check_raid_level(raid.level.as_deref().unwrap_or_default(), raid.spares.unwrap_or(0), at)?;
    let at = at.field("devices");
    if raid.devices.is_empty() {
        return Err(at.invalid("are missing"));
    }
    each(&raid.devices, &at, |device, at| check_path(device, at))?;
    all_unique(&raid.devices, &at, String::as_str)
}

/// Checks for a level of md(4); levels without redundancy have no spares.
pub(super) fn check_raid_level(level: &str, spares: i64, at: &FieldPath<'_>) -> Checked {
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

fn check_filesystem(filesystem: &Filesystem, spec: Spec, at: &FieldPath<'_>) -> Checked {
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

pub(super) fn check_format(format: &str, spec: Spec, at: &FieldPath<'_>) -> Checked {
    match FORMATS.iter().find(|(name, _)| *name == format) {
        Some(&(_, since)) if spec < since => Err(resource::needs(at, format, since)),
        Some(_) => Ok(()),
        None => Err(at.invalid(format!("{format:?} is not a file system that Ignition makes"))),
    }
}

pub(super) fn check_label(format: &str, label: Option<&str>, at: &FieldPath<'_>) -> Checked {
    let limit = LABELS.iter().find(|(name, _)| *name == format);
    match (label, limit) {
        (Some(label), Some(&(_, limit))) if label.len() > limit => Err(at
            .field("label")
            .invalid(format!("is longer than the {limit} bytes that {format} has"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::verdict;

    fn partitions(minor: u8, partitions: &Value) -> String {
        let verdict = verdict(
            minor,
            "storage",
            &json!({"disks": [{"device": "/dev/a", "partitions": partitions}]}),
        );
        verdict.trim_start_matches("storage.disks[0].partitions").to_owned()
    }

    #[test]
    fn a_partition_is_identified_and_described_soundly() {
        let guid = "01234567-89ab-CDEF-EDCB-A98765432101";
        for (partition, reason) in [
            (json!({"number": 1}), "valid"),
            (json!({"label": ""}), "valid"),
            (json!({"number": 1, "guid": guid, "typeGuid": ""}), "valid"),
            (json!({"number": 1, "shouldExist": false}), "valid"),
            (json!({}), "[0]: has neither a number nor a label"),
            (json!({"label": "l".repeat(37)}), "[0].label: is longer than 36 bytes"),
            (json!({"label": "a:b"}), "[0].label: contains a colon, which sgdisk cannot take"),
            (
                json!({"number": 1, "guid": "1-2"}),
                "[0].guid: \"1-2\" is not of the form 01234567-89AB-CDEF-EDCB-A98765432101",
            ),
            (
                json!({"number": 1, "typeGuid": "x"}),
                "[0].typeGuid: \"x\" is not of the form 01234567-89AB-CDEF-EDCB-A98765432101",
            ),
            (
                json!({"number": 1, "shouldExist": false, "sizeMiB": 0}),
                "[0].shouldExist: is false, but the partition is described",
            ),
        ] {
            assert_eq!(partitions(6, &json!([partition])), reason);
        }
    }

    #[test]
    fn partitions_of_a_disk_keep_out_of_each_others_way() {
        let at = |number: i64, start: i64, size: i64| json!({"number": number, "startMiB": start, "sizeMiB": size});
        for (two, reason) in [
            (json!([at(1, 1, 10), at(2, 11, 0)]), "valid"),
            (json!([at(1, 0, 10), at(2, 0, 10)]), "valid"),
            (json!([at(1, 1, 10), {"number": 2, "startMiB": 5}]), "valid"),
            (json!([at(1, 1, 10), at(2, 10, 1)]), "[0]: overlaps with another partition"),
            (json!([at(1, 5, 0), at(2, 1, 10)]), "[0]: overlaps with another partition"),
            (
                json!([at(1, 1, i64::MAX), at(2, 1, i64::MAX)]),
                "[0]: overlaps with another partition",
            ),
            (json!([at(1, 1, 1), at(1, 2, 1)]), "[1].number: appears twice on its disk"),
            (
                json!([{"label": "a"}, {"label": "a", "number": 1}]),
                "[1].label: appears twice on its disk",
            ),
        ] {
            assert_eq!(partitions(6, &two), reason);
        }
    }

    #[test]
    fn numbers_are_not_chosen_while_partitions_are_deleted_before_3_6() {
        let two = json!([{"number": 1, "shouldExist": false}, {"label": "a"}]);
        assert_eq!(partitions(6, &two), "valid");
        assert_eq!(
            partitions(5, &two),
            ": one must be deleted and another has no number, which needs spec 3.6"
        );
    }

    #[test]
    fn arrays_have_devices_and_a_level() {
        let device = json!(["/dev/a"]);
        for (raid, reason) in [
            (json!({"level": "raid1", "devices": device, "spares": 1}), "valid"),
            (json!({"level": "stripe", "devices": device, "spares": 0}), "valid"),
            (
                json!({"level": "linear", "devices": device, "spares": 1}),
                "spares: level linear has none",
            ),
            (json!({"devices": device}), "level: is missing"),
            (json!({"level": "raid7", "devices": device}), "level: \"raid7\" is not a RAID level"),
            (json!({"level": "1"}), "devices: are missing"),
            (json!({"level": "1", "devices": ["a"]}), "devices[0]: is not absolute"),
            (json!({"level": "1", "devices": ["/a", "/a"]}), "devices[1]: appears twice"),
        ] {
            let verdict = verdict(6, "storage", &json!({"raid": [raid]}));
            assert_eq!(verdict.trim_start_matches("storage.raid[0]."), reason);
        }
    }

    #[test]
    fn file_systems_have_a_format_of_their_spec_and_a_label_that_fits() {
        for (minor, filesystem, reason) in [
            (0, json!({}), "valid"),
            (0, json!({"format": "swap", "label": "l".repeat(15)}), "valid"),
            (3, json!({"format": "none"}), "valid"),
            (2, json!({"format": "none"}), "format: none needs spec 3.3"),
            (
                6,
                json!({"format": "ext3"}),
                "format: \"ext3\" is not a file system that Ignition makes",
            ),
            (6, json!({"path": "/a"}), "format: is missing from a file system that is described"),
            (
                6,
                json!({"options": ["a"]}),
                "format: is missing from a file system that is described",
            ),
            (6, json!({"format": "xfs", "path": "a"}), "path: is not absolute"),
            (
                6,
                json!({"format": "ext4", "label": "l".repeat(17)}),
                "label: is longer than the 16 bytes that ext4 has",
            ),
            (
                6,
                json!({"format": "btrfs", "label": "l".repeat(257)}),
                "label: is longer than the 256 bytes that btrfs has",
            ),
            (
                6,
                json!({"format": "xfs", "label": "l".repeat(13)}),
                "label: is longer than the 12 bytes that xfs has",
            ),
            (
                6,
                json!({"format": "vfat", "label": "l".repeat(12)}),
                "label: is longer than the 11 bytes that vfat has",
            ),
            (6, json!({"device": ""}), "device: is empty"),
        ] {
            let mut whole = json!({"device": "/dev/a"});
            whole.as_object_mut().unwrap().extend(filesystem.as_object().unwrap().clone());
            let verdict = verdict(minor, "storage", &json!({"filesystems": [whole]}));
            assert_eq!(verdict.trim_start_matches("storage.filesystems[0]."), reason);
        }
    }
}
