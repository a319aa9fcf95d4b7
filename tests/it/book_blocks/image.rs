//! The page about the image, with a registry that has the page's name and a certificate of its own.

use super::shell::apart;
use super::walk::{PAGE, Page, Terminal, walk};
use crate::support::image;

/// The image of the binary under test, and a registry that clients trust.
const REGISTRY: &str = r#"
mkdir -p target/image && cp "$IMAGE" target/image.tar && tar -C target/image -xf target/image.tar
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=registry.example.com \
    -addext subjectAltName=DNS:registry.example.com -keyout registry.key -out registry.crt
mkdir -p /etc/containers/certs.d/registry.example.com && cp registry.crt /etc/containers/certs.d/registry.example.com/ca.crt
echo '{"version": "0.1", "storage": {"filesystem": {"rootdirectory": "/var/lib/registry"}},
    "http": {"addr": "127.0.0.1:443", "tls": {"certificate": "registry.crt", "key": "registry.key"}}}' >registry.json
docker-registry serve registry.json >registry.log 2>&1 &
curl --silent --show-error --retry 50 --retry-connrefused --retry-delay 1 --cacert registry.crt https://registry.example.com/v2/
"#;

pub(super) const PAGES: &[Page] =
    &[Page { name: "docs/src/how-to/image.md", before: &[REGISTRY], ..PAGE }];

#[test]
fn skopeo_and_podman_take_the_image() {
    let variables = vec![("IMAGE".to_owned(), image::archive().display().to_string())];
    apart(|| walk(PAGES, &Terminal { variables, ..Terminal::default() }));
}
