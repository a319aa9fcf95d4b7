//! Secrets in a rendered config, which every client with access can read.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use ignition::contents::{Contents, UnpackBudget};
use ignition::{self, Config};
use secrets::{Secret, SecretKind, SecretPlace, in_arguments, secrets};

use super::steps::{ENCAPSULATED, MACHINE_CONFIG};
use crate::escape::{NAME, cut, escaped, listed};
use crate::objects::MachineConfig;

/// Maximum number of places named in a line.
const NAMED: usize = 5;

/// All secrets in a rendered config, including the bootstrap kubeconfig with its token. The copy of the MachineConfig
/// in it is ignored, since it repeats them.
pub fn exposed(rendered: &[u8]) -> Result<Vec<Secret>, ignition::Error> {
    let mut config = Config::parse(&String::from_utf8_lossy(rendered))?;
    config.remove_file(MACHINE_CONFIG);
    let arguments: BTreeSet<_> = in_arguments(&kernel_arguments(&config)).collect();
    let mut found: BTreeSet<_> =
        secrets(&config, &mut UnpackBudget::default()).into_iter().collect();
    // Secrets in kernel arguments are not reported again for the file with the arguments.
    found.retain(|it| {
        let is_reported = || arguments.iter().any(|argument| argument.kind == it.kind);
        it.place != SecretPlace::File(ENCAPSULATED.to_owned()) || !is_reported()
    });
    found.extend(arguments);
    Ok(found.into_iter().collect())
}

/// Kernel arguments in the encapsulated MachineConfig of a rendered config: machine-config-daemon sets them, not
/// Ignition.
pub fn kernel_arguments(config: &Config) -> Vec<String> {
    let file = config.body().storage.files.iter().find(|file| file.path == ENCAPSULATED);
    let resources = file.map(|file| iter::once(&file.contents).chain(&file.append));
    let read = |resource| match Contents::read(resource, &mut UnpackBudget::default()) {
        Contents::Bytes(bytes) => serde_json::from_slice::<MachineConfig>(&bytes).ok(),
        _ => None,
    };
    let machine_configs = resources.into_iter().flatten().filter_map(read);
    machine_configs.filter_map(|it| it.spec.kernel_arguments).flatten().collect()
}

/// One line about a pool's config for administrators, without values: the first few places, and the number of the
/// others; `None` without secrets.
pub fn exposed_line(pool: &str, secrets: &[Secret]) -> Option<String> {
    let places = by_danger(secrets);
    let named: Vec<String> = places.iter().map(named).collect();
    let (pool, named) = (escaped(pool), (!named.is_empty()).then(|| listed(&named, NAMED))?);
    Some(format!("pool {pool}: unauthenticated clients can read {named}"))
}

/// Places of secrets in a config, for the fields of a log line: the first few, as in [`exposed_line`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExposedPlaces {
    /// Paths of files.
    pub files: Vec<String>,
    /// Units and drop-ins.
    pub units: Vec<String>,
    /// Names of users.
    pub users: Vec<String>,
    /// Groups, disks and fields of the config.
    pub others: Vec<String>,
    /// Number of places that are not named.
    pub more: usize,
}

impl ExposedPlaces {
    /// The places of `secrets`, `None` if there are no secrets.
    pub fn of(secrets: &[Secret]) -> Option<Self> {
        let places = by_danger(secrets);
        let more = places.len().saturating_sub(NAMED);
        let mut found = Self { more, ..Self::default() };
        for (place, _) in places.iter().take(NAMED) {
            let (list, name) = match place {
                SecretPlace::File(path) => (&mut found.files, path.clone()),
                SecretPlace::Unit(name) => (&mut found.units, name.clone()),
                SecretPlace::Dropin { unit, name } => {
                    (&mut found.units, format!("{unit}.d/{name}"))
                }
                SecretPlace::User(name) => (&mut found.users, name.clone()),
                other => (&mut found.others, other.to_string()),
            };
            list.push(cut(&name, NAME).into_owned());
        }
        (!places.is_empty()).then_some(found)
    }
}

/// Places with their kinds, those of the most dangerous secrets first.
fn by_danger(secrets: &[Secret]) -> Vec<(&SecretPlace, BTreeSet<SecretKind>)> {
    let mut places: BTreeMap<&SecretPlace, BTreeSet<SecretKind>> = BTreeMap::new();
    for Secret { place, kind } in secrets {
        places.entry(place).or_default().insert(*kind);
    }
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_by(|(a, a_kinds), (b, b_kinds)| (a_kinds.first(), a).cmp(&(b_kinds.first(), b)));
    places
}

fn named((place, kinds): &(&SecretPlace, BTreeSet<SecretKind>)) -> String {
    let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    let place = place.to_string();
    format!("{} ({})", escaped(&cut(&place, NAME)), kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(config: &Value) -> Option<String> {
        let line = exposed_line("worker", &exposed(config.to_string().as_bytes()).unwrap())?;
        let places = line.strip_prefix("pool worker: unauthenticated clients can read ");
        Some(places.unwrap().to_owned())
    }

    fn file(path: &str, text: &str) -> Value {
        let text = ignition::data_url::encode(text.as_bytes());
        json!({"path": path, "contents": {"source": text}})
    }

    #[test]
    fn places_are_named_with_their_kinds_and_without_values() {
        let key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n";
        let token = "token: abcdef.0123456789abcdef\n";
        let kubeconfig = format!("kind: Config\nusers:\n- user:\n    {token}");
        let config = json!({
            "ignition": {"version": "3.4.0"},
            "passwd": {"users": [{"name": "core", "passwordHash": format!("$6$salt${}", "a".repeat(86))}]},
            "storage": {"files": [
                file("/a", "PASSWORD=sesame\n"),
                file("/both", &format!("{key}PASSWORD=sesame\n")),
                file("/etc/kubernetes/kubeconfig", &kubeconfig),
                file(MACHINE_CONFIG, key),
                file("/x\n", "PASSWORD=sesame\n"),
                file("/y", "PASSWORD=sesame\n"),
            ]},
            "systemd": {"units": [{"name": "u.service", "contents": "[Service]\nEnvironment=PASSWORD=sesame\n"}]},
        });
        assert_eq!(
            line(&config).unwrap(),
            "/both (private key, password), /etc/kubernetes/kubeconfig (kubeconfig with credentials), \
             user core (password hash), /a (password), /x\\n (password) and 2 more"
        );
        let places = ExposedPlaces::of(&exposed(config.to_string().as_bytes()).unwrap()).unwrap();
        assert_eq!(places.files, ["/both", "/etc/kubernetes/kubeconfig", "/a", "/x\n"]);
        assert_eq!((places.users, places.more), (vec!["core".to_owned()], 2));
    }

    #[test]
    fn a_file_that_is_not_searched_as_a_whole_is_named() {
        let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [
            file("/large", &"a\n".repeat((2 << 20) + 1)),
            file("/small", "a\n"),
        ]}});
        let line = line(&config).unwrap();
        assert_eq!(line, "/large (only its first 4 MiB were searched for secrets)");
    }

    #[test]
    fn arguments_of_the_kernel_are_read_where_the_machine_config_is() {
        let machine_config = |arguments: Value| {
            json!({
                "kind": "MachineConfig", "metadata": {"name": "rendered"},
                "spec": {"kernelArguments": arguments},
            })
        };
        let config = |machine_config: &str, own: Value| {
            json!({
                "ignition": {"version": "3.4.0"}, "kernelArguments": {"shouldExist": own},
                "storage": {"files": [file(ENCAPSULATED, machine_config)]},
            })
        };
        let secret = machine_config(json!(["quiet", "password=/sesame1"])).to_string();
        assert_eq!(line(&config(&secret, json!([]))).unwrap(), "kernelArguments (password)");
        let innocent = machine_config(json!(["quiet"])).to_string();
        for text in [&innocent, "", "{", "[1]", &machine_config(Value::Null).to_string()] {
            assert_eq!(line(&config(text, json!(["quiet"]))), None, "{text}");
        }
        let both = config(&secret, json!(["password=/sesame1"]));
        assert_eq!(line(&both).unwrap(), "kernelArguments (password)");
    }

    #[test]
    fn a_config_without_secrets_has_no_line() {
        assert_eq!(line(&json!({"ignition": {"version": "3.4.0"}})), None);
        assert_eq!(ExposedPlaces::of(&[]), None);
        let copy = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [
            file(MACHINE_CONFIG, "PASSWORD=sesame\n"),
        ]}});
        assert_eq!(line(&copy), None);
    }
}
