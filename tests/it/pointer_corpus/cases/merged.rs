//! Timeouts, proxies, and configs within the pointer config.

use ignition::{SpecVersion, pointer};
use serde_json::{Value, json};

use super::{Cases, data, gzip, merge, sha512};

impl Cases<'_> {
    pub(super) fn timeouts(&mut self) {
        for (name, timeouts) in [
            ("null", Value::Null),
            ("60 s", json!({"httpTotal": 60, "httpResponseHeaders": 60})),
            ("0", json!({"httpTotal": 0, "httpResponseHeaders": 0})),
            ("a negative one", json!({"httpTotal": -1})),
            ("a negative one for headers", json!({"httpResponseHeaders": -1})),
            ("one that overflows", json!({"httpTotal": 9_223_372_037_i64})),
            ("the longest", json!({"httpTotal": i64::MAX})),
            ("a fraction", json!({"httpTotal": 60.5})),
            ("a whole fraction", json!({"httpTotal": 60.0})),
            ("text", json!({"httpTotal": "60"})),
            ("a list", json!([])),
            ("true", json!({"httpTotal": true})),
        ] {
            self.with(format!("timeouts: {name}"), |config| {
                config["ignition"]["timeouts"] = timeouts;
            });
        }
        for (name, number) in [("60e0", "60e0"), ("too large", "9223372036854775808"), ("-0", "-0")]
        {
            let own = self.site.config.to_string();
            let with = format!("{{\"ignition\":{{\"timeouts\":{{\"httpTotal\":{number}}},");
            self.text(format!("timeouts: {name}"), own.replacen("{\"ignition\":{", &with, 1));
        }
        let proxy = |it: Value| move |config: &mut Value| config["ignition"]["proxy"] = it;
        self.with("proxy: null", proxy(Value::Null));
        self.with("proxy: no URL", proxy(json!({"httpsProxy": "localhost"})));
        self.with("proxy: for nothing", proxy(json!({"noProxy": ["localhost"]})));
        self.with("proxy: twice for nothing", proxy(json!({"noProxy": ["a", "a"]})));
    }

    #[expect(clippy::too_many_lines, reason = "it is a table")]
    pub(super) fn data_configs(&mut self) {
        let url = self.site.url();
        let pem = self.site.pem.clone();
        let config = |version: &str| json!({"ignition": {"version": version}}).to_string();
        let pointing = pointer(&url, pem.as_bytes(), SpecVersion::V3_1).to_string();
        let mut bare = pointer(&url, b"", SpecVersion::V3_1);
        bare["ignition"]["security"] = json!({});
        let bare = bare.to_string();
        let mut negative = bare.parse::<Value>().expect("JSON");
        negative["ignition"]["timeouts"] = json!({"httpTotal": -5});
        let replacing =
            json!({"ignition": {"version": "3.1.0", "config": {"replace": {"source": url}}}});
        let emptied =
            json!({"ignition": {"version": "3.1.0", "config": {"replace": {"source": ""}}}});
        let nested = json!({"ignition": {"version": "3.1.0", "config": {"merge": [{"source": data(bare.as_bytes())}]}}});
        let invalid =
            json!({"ignition": {"version": "3.1.0"}, "storage": {"files": [{"path": "a"}]}});
        for (name, contents) in [
            ("nothing", String::new()),
            ("a space", " ".to_owned()),
            ("text", "x".to_owned()),
            ("an empty object", "{}".to_owned()),
            ("cut short", "{\"ignition\": ".to_owned()),
            ("3.1", config("3.1.0")),
            ("3.0", config("3.0.0")),
            ("2.2", config("2.2.0")),
            ("3.9", config("3.9.0")),
            ("the pool too", pointing.clone()),
            ("the pool too, without CAs", bare.clone()),
            ("a time that is over", negative.to_string()),
            ("what replaces itself", replacing.to_string()),
            ("what empties itself", emptied.to_string()),
            ("another within it", nested.to_string()),
            ("a file without a path", invalid.to_string()),
        ] {
            let source = data(contents.as_bytes());
            let pool = json!({"source": url});
            self.with(format!("data beside the pool: {name}"), |config| {
                *merge(config) = json!([pool, {"source": source}]);
            });
            self.with(format!("data alone: {name}"), |config| {
                *merge(config) = json!([{"source": source}]);
            });
            self.with(format!("data that replaces: {name}"), |config| {
                config["ignition"]["config"]["replace"] = json!({"source": source});
            });
        }
        let contents = config("3.1.0");
        let contents = contents.as_bytes();
        let hash = sha512(contents);
        for (name, resource) in [
            ("a hash", json!({"source": data(contents), "verification": {"hash": hash}})),
            (
                "a hash in upper case",
                json!({"source": data(contents), "verification": {"hash": hash.to_uppercase().replace("SHA", "sha")}}),
            ),
            (
                "a wrong hash",
                json!({"source": data(contents), "verification": {"hash": sha512(b"")}}),
            ),
            ("packed", json!({"source": data(&gzip(contents)), "compression": "gzip"})),
            ("told to be packed", json!({"source": data(contents), "compression": "gzip"})),
            (
                "headers",
                json!({"source": data(contents), "httpHeaders": [{"name": "a", "value": "b"}]}),
            ),
        ] {
            let pool = json!({"source": url});
            self.with(format!("data with {name}"), |config| {
                *merge(config) = json!([resource, pool]);
            });
        }
        // The CAs to trust are in the config that is merged first.
        let mut trusting = pointer(&url, pem.as_bytes(), SpecVersion::V3_1);
        trusting["ignition"]["config"] = json!({});
        let trusting = trusting.to_string();
        for (name, first, second) in [
            ("before the pool", data(trusting.as_bytes()), url.clone()),
            ("after the pool", url.clone(), data(trusting.as_bytes())),
        ] {
            self.with(format!("CAs in data {name}"), |config| {
                config["ignition"]["security"] = json!({});
                *merge(config) = json!([{"source": first}, {"source": second}]);
            });
        }
        self.with("a pool in data with its CAs", |config| {
            config["ignition"]["security"] = json!({});
            *merge(config) = json!([{"source": data(pointing.as_bytes())}]);
        });
    }
}
