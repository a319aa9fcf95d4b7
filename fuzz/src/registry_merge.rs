//! The registries' config maps: what a plan writes needs no further write, fits into a config map, and
//! names registries only.
//!
//! An input is a byte for whose config map there is, and then a line for each entry: a letter for its
//! map, in upper case for bytes, a key, a space and a value.

use std::collections::BTreeMap;

use super::{expanded, pem_word};
use model::objects::{ConfigMap, Metadata};
use model::registry_ca::{
    Administrators, Contents, MAX_BYTES, RegistryCaMaps, RegistryHost, Write, collect, plan,
};

#[derive(Default)]
struct Entries {
    text: BTreeMap<String, String>,
    bytes: BTreeMap<String, Vec<u8>>,
}

impl Entries {
    fn map(self, name: &str) -> ConfigMap {
        let metadata = Metadata { name: name.to_owned(), namespace: "a".to_owned() };
        ConfigMap::new(metadata, self.text, self.bytes)
    }
}

/// Values of a megabyte cannot be in an input: `L` stands for a large one.
fn word(letter: u8) -> Option<String> {
    match letter {
        b'L' => Some(format!("{}{}", pem_word(b'0')?, "#".repeat(MAX_BYTES / 3))),
        other => pem_word(other),
    }
}

/// Judges one input.
pub fn run(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let mut maps = [Entries::default(), Entries::default(), Entries::default()];
    let lines = rest.split(|byte| *byte == b'\n').take(12);
    for line in lines {
        let Some((&letter, entry)) = line.split_first() else { continue };
        let Some(space) = entry.iter().position(|byte| *byte == b' ') else { continue };
        let key = String::from_utf8_lossy(&entry[..space]).into_owned();
        let value = expanded(&entry[space + 1..], word);
        let map = &mut maps[usize::from(letter) % 3];
        if letter.is_ascii_uppercase() {
            map.bytes.insert(key, value);
        } else {
            map.text.insert(key, String::from_utf8_lossy(&value).into_owned());
        }
    }
    let [administrators, operators, merged] = maps;
    let administrators = administrators.map("administrators");
    let operators = operators.map("image-registry-ca");
    let merged = merged.map("merged");
    let observed = RegistryCaMaps {
        administrators: match first % 3 {
            0 => Administrators::Unnamed,
            1 => Administrators::Missing("administrators"),
            _ => Administrators::Found(&administrators),
        },
        operators: (first & 4 != 0).then_some(&operators),
        merged: (first & 8 != 0).then_some(&merged),
    };
    let planned = plan(observed);
    let total = planned.cas.values().fold(0, |sum, value| sum + value.len());
    assert!(total <= MAX_BYTES, "{total}");
    for host in planned.cas.keys() {
        assert_eq!(RegistryHost::parse(host.as_str()).as_ref(), Ok(host));
    }
    for refused in &planned.refused {
        let _ = refused.to_string();
    }
    let written = match planned.write {
        Write::Nothing => return,
        Write::Create(contents) | Write::Update(contents) => contents,
    };
    let Contents { data, binary_data } = written;
    let bytes = binary_data.into_iter().map(|(key, value)| (key, value.to_vec())).collect();
    let written = Entries { text: data, bytes }.map("merged");
    let again = plan(RegistryCaMaps { merged: Some(&written), ..observed });
    assert_eq!(again.write, Write::Nothing);
    assert_eq!(again.cas, planned.cas);
    let _ = collect(&[&administrators, &operators, &written], None, &again.cas);
}
