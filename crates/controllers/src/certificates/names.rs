//! Names of objects, keys and annotations for certificates, the same as the reference's where it has them.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

/// Secret of the signing CA, and ConfigMap of the bundle.
pub const CA: &str = "machine-config-server-ca";
/// Secret of a requested CA: its key, until it is issued.
pub(super) const CA_REQUEST: &str = "machine-config-server-ca-request";
/// Secret of the serving certificate.
pub const SERVING: &str = "machine-config-server-tls";
/// Copy of the serving certificate while its Secret is replaced by one of another type.
pub(super) const SERVING_COPY: &str = "machine-config-server-tls-retype";
/// Secret of the internal release image's serving certificate.
pub(super) const RELEASE_IMAGE_PAIR: &str = "internal-release-image-tls";
/// Required type of the serving certificate's Secret.
pub(super) const TLS_TYPE: &str = "kubernetes.io/tls";
/// Namespace of an older installation's CA certificate, without its key.
pub(super) const ROOT_NAMESPACE: &str = "kube-system";
/// ConfigMap of the older installation's CA.
pub(super) const ROOT: &str = "root-ca";
/// Key in that ConfigMap.
pub(super) const ROOT_KEY: &str = "ca.crt";

/// Key of a pair's certificates.
pub(super) const CERTIFICATE_KEY: &str = "tls.crt";
/// Key of a pair's private key.
pub(super) const PRIVATE_KEY: &str = "tls.key";
/// Key of the request to an issuer.
pub(super) const REQUEST_KEY: &str = "tls.csr";
pub(super) const BUNDLE_KEY: &str = "ca-bundle.crt";
/// Key of the signing CA's previous CAs.
pub(super) const PREVIOUS: &str = "previous-cas.pem";
/// Key of the previous CAs in older releases. The next write of the CA removes it.
pub(super) const PREVIOUS_BEFORE: &str = "lineage.pem";
/// Key of user data in a Secret.
pub(crate) const USER_DATA: &str = "userData";

/// Label of user data that is derived from the bundle.
pub(super) const MANAGED: &str =
    "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";
/// Annotation by which an administrator requests a rotation: any new value.
pub(super) const ROTATE: &str = "machineconfiguration.openshift.io/rotate-certificate";
/// Word in the annotation's value that rotates even if machines are locked out.
pub(super) const FORCE: &str = "--force";
/// Annotation of the CA's Secret by which an administrator distrusts CAs: their fingerprints or common names, separated
/// by commas.
pub(super) const DISTRUST: &str = "machineconfiguration.openshift.io/distrust-certificates";
/// Annotation with the last handled value.
pub(super) const ROTATED: &str = "machineconfiguration.openshift.io/rotate-certificate-handled";
/// Annotation with the SHA-256 of the serving certificate at the time of a forced new CA: that certificate is replaced
/// even if machines are locked out, and no later one.
pub(super) const FORCED: &str = "machineconfiguration.openshift.io/forced-over-certificate-sha256";
/// Annotation with the issuer of the CA, or of the requested one.
pub(super) const CA_ISSUER: &str = "machineconfiguration.openshift.io/ca-issuer";
/// Annotations with the time of the request, and the number of failed ones before it.
pub(super) const REQUESTED: &str = "machineconfiguration.openshift.io/requested-at";
pub(super) const REQUESTED_BEFORE: &str = "machineconfiguration.openshift.io/requested-before";
pub(super) const NOT_BEFORE: &str = "auth.openshift.io/certificate-not-before";
pub(super) const NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";
pub(super) const ISSUER: &str = "auth.openshift.io/certificate-issuer";
/// Annotation with the names that the reference's controller would put into the serving pair: it replaces a pair with
/// others.
pub(super) const HOSTNAMES: &str = "auth.openshift.io/certificate-hostnames";
/// Annotation with the SHA-256 of the certificate that was issued here. A different certificate was issued by another
/// party.
pub(super) const ISSUED: &str = "machineconfiguration.openshift.io/issued-certificate-sha256";
/// Annotation of the serving pair's Secret with the external pair's Secret and ConfigMap, for commands that do not have
/// the controller's flags. It is absent if the controller issues the pair.
pub(super) const EXTERNAL_PAIR: &str = "machineconfiguration.openshift.io/external-serving-pair";
pub(super) const REFRESH: &str = "certificates.openshift.io/refresh-period";
