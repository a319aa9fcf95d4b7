//! What the documents say that the server may do, and what its roles give it.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::manifests::yaml_documents;
use crate::support::{book, in_repository};

/// A right: the resource, the object's name or none, where, and the verb.
type Right = [String; 4];

/// The rows of the book, but those of other files, which say with what they go.
fn rights_in_the_book() -> BTreeSet<Right> {
    let page = book::page("reference/rights.md");
    let section = page.split("\n## The server\n").nth(1).expect("a section");
    let table = section.lines().skip_while(|line| !line.starts_with("| `"));
    let rows = table.take_while(|line| line.starts_with('|')).filter(|row| row.starts_with("| `"));
    let quoted = |text: &str| -> Vec<String> {
        text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let mut rights = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [what, place, verbs] = cells[..] else { panic!("{row}") };
        let mut resources = quoted(what);
        let name = if what.contains(", only ") { resources.pop() } else { None };
        for resource in resources {
            for verb in verbs.split(", ") {
                let place = quoted(place).pop().unwrap_or_default();
                let name = name.clone().unwrap_or_default();
                rights.insert([resource.clone(), name, place, verb.to_owned()]);
            }
        }
    }
    rights
}

#[test]
fn the_book_has_the_rights_that_the_roles_give() {
    let roles = fs::read_to_string(in_repository("deploy/base/rbac.yaml")).expect("the roles");
    let texts = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.map(|it| it.as_str().expect("text").to_owned()).collect()
    };
    let mut given = BTreeSet::new();
    for role in yaml_documents(&roles) {
        let place = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().into_iter().flatten() {
            let mut names = texts(&rule["resourceNames"]);
            if names.is_empty() {
                names.push(String::new());
            }
            for resource in texts(&rule["resources"]) {
                for (name, verb) in names
                    .iter()
                    .flat_map(|name| texts(&rule["verbs"]).into_iter().map(move |it| (name, it)))
                {
                    given.insert([resource.clone(), name.clone(), place.to_owned(), verb]);
                }
            }
        }
    }
    assert_eq!(rights_in_the_book(), given);
}
