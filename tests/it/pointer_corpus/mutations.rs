//! Pointer configs with something changed at a random place, the same in every run.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{Case, PointerServer};
use crate::support::random::Random;

type Mutation = fn(&PointerServer, &mut Random) -> Vec<u8>;

/// So many of them.
pub(super) fn some(site: &PointerServer, many: u64) -> Vec<Case> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let kinds: [(&str, Mutation); 5] = [
        ("a value", value),
        ("PEM", in_pem),
        ("a URL", in_url),
        ("headers", in_headers),
        ("a byte", byte),
    ];
    let case = |(index, &(name, mutate)): (u64, &(&str, Mutation))| Case {
        name: format!("{index}: {name}"),
        text: mutate(site, &mut random),
    };
    (0..many).zip(kinds.iter().cycle()).map(case).collect()
}

/// The value at a random place is another one, or gone.
fn value(site: &PointerServer, random: &mut Random) -> Vec<u8> {
    let mut config = site.config.clone();
    config["ignition"]["timeouts"] = json!({"httpTotal": 600, "httpResponseHeaders": 600});
    config["ignition"]["config"]["replace"] = json!({"source": null});
    config["ignition"]["config"]["merge"][0]["verification"] = json!({"hash": null});
    config["ignition"]["config"]["merge"][0]["httpHeaders"] =
        json!([{"name": "X-A", "value": "b"}]);
    let paths = paths(&config);
    let path = &paths[random.index(paths.len())];
    let others = [
        Value::Null,
        json!(""),
        json!("x"),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(true),
        json!([]),
        json!({}),
        json!([null]),
        json!([{}]),
        json!("data:,"),
        json!(site.url()),
        json!({"source": null}),
    ];
    let other = others[random.index(others.len())].clone();
    if let Some(place) = config.pointer_mut(path) {
        *place = other;
    }
    config.to_string().into_bytes()
}

fn paths(value: &Value) -> Vec<String> {
    let within: Vec<(String, &Value)> = match value {
        Value::Object(object) => object.iter().map(|(name, it)| (name.clone(), it)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().map(|(at, it)| (at.to_string(), it)).collect()
        }
        _ => Vec::new(),
    };
    let of = |(name, it): (String, &Value)| {
        let deeper = paths(it).into_iter().map(|path| format!("/{name}{path}"));
        std::iter::once(format!("/{name}")).chain(deeper).collect::<Vec<_>>()
    };
    within.into_iter().flat_map(of).collect()
}

/// Something more, or less, at a random place of a text.
fn changed(text: &str, more: &[&str], random: &mut Random) -> String {
    let at = random.index(text.len() + 1);
    let (before, after) = text.split_at(at);
    match random.below(3) {
        0 => format!("{before}{}", after.get(1..).unwrap_or_default()),
        1 => format!(
            "{before}{}{}",
            more[random.index(more.len())],
            after.get(1..).unwrap_or_default()
        ),
        _ => format!("{before}{}{after}", more[random.index(more.len())]),
    }
}

fn in_pem(site: &PointerServer, random: &mut Random) -> Vec<u8> {
    let junk = "-----BEGIN CERTIFICATE-----\n";
    let more =
        [" ", "\n", "\r", "\r\n", "\t", "A", "=", "-", ":", "-----", "#", "\0", junk, "\u{e9}"];
    let mut lines: Vec<String> = site.pem.split_inclusive('\n').map(str::to_owned).collect();
    let edges = [0, lines.len() - 1, lines.len() - 2];
    let at = if random.below(2) == 0 { edges[random.index(3)] } else { random.index(lines.len()) };
    match random.below(5) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, more[random.index(more.len())].to_owned() + "\n"),
        2 => lines.insert(at, site.pem.clone()),
        _ => lines[at] = changed(&lines[at], &more, random),
    }
    let source = format!("data:;base64,{}", BASE64.encode(lines.concat()));
    let mut config = site.config.clone();
    config["ignition"]["security"]["tls"]["certificateAuthorities"][0]["source"] = source.into();
    config.to_string().into_bytes()
}

/// Host and port stay: nobody else is asked.
fn in_url(site: &PointerServer, random: &mut Random) -> Vec<u8> {
    let more = [
        "/", "%", "%2", "%41", "?", "#", " ", "@", "\\", "\n", "\u{e9}", "a", "W", "+", "\"", ".",
        "..", "[", ";", "&",
    ];
    let url = site.url();
    let path = url.find("/config/").expect("a path");
    let changed = match random.below(4) {
        0 => changed(&url[..7], &more, random) + &url[7..],
        _ => url[..path].to_owned() + &changed(&url[path..], &more, random),
    };
    let mut config = site.config.clone();
    config["ignition"]["config"]["merge"][0]["source"] = changed.into();
    config.to_string().into_bytes()
}

fn in_headers(site: &PointerServer, random: &mut Random) -> Vec<u8> {
    let more = [" ", "\t", "\n", "\0", ":", "\u{e9}", "a", "-", "(", "\u{7f}", "\"", "\u{1f600}"];
    let names = ["X-A", "accept", "Authorization", "Content-Type", "x"];
    let header = |random: &mut Random| {
        let name = changed(names[random.index(names.len())], &more, random);
        json!({"name": name, "value": changed("some value", &more, random)})
    };
    let headers: Vec<_> = (0..=random.below(2)).map(|_| header(random)).collect();
    let mut config = site.config.clone();
    config["ignition"]["config"]["merge"][0]["httpHeaders"] = headers.into();
    config.to_string().into_bytes()
}

/// Outside of what is long, which would nearly always be hit.
fn byte(site: &PointerServer, random: &mut Random) -> Vec<u8> {
    let mut config = site.config.clone();
    let entry = &mut config["ignition"]["security"]["tls"]["certificateAuthorities"][0];
    let source = entry["source"].take();
    entry["source"] = "@".into();
    let url =
        std::mem::replace(&mut config["ignition"]["config"]["merge"][0]["source"], "$".into());
    let more = [
        "\"", "{", "}", "[", "]", ",", ":", " ", "\n", "\0", "1", "e", "-", "\\", "\u{e9}", "null",
    ];
    let text = changed(&config.to_string(), &more, random);
    let text = text.replace("\"@\"", &source.to_string());
    text.replace("\"$\"", &url.to_string()).into_bytes()
}
