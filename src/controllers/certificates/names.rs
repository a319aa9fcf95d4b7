//! The objects of the certificates, and what is written into them: all as the reference has them.

/// The secret of the signing authority, and the config map of the bundle.
pub const CA: &str = "machine-config-server-ca";
/// The secret of a CA that an issuer is asked for: its key, until it is issued.
pub(super) const CA_REQUEST: &str = "machine-config-server-ca-request";
/// The secret of the serving pair.
pub const SERVING: &str = "machine-config-server-tls";
/// A copy of the serving pair while its secret is made anew with another type.
pub(super) const SERVING_COPY: &str = "machine-config-server-tls-retype";
/// The secret of the pair that the internal release image is served with.
pub(super) const RELEASE_IMAGE_PAIR: &str = "internal-release-image-tls";
/// The type that the serving pair's secret has to have.
pub(super) const TLS_TYPE: &str = "kubernetes.io/tls";
/// Where older installations have their authority's certificate, without its key.
pub(super) const ROOT_NAMESPACE: &str = "kube-system";
/// The config map of that.
pub(super) const ROOT: &str = "root-ca";
/// The key of that.
pub(super) const ROOT_KEY: &str = "ca.crt";

/// The key of a pair's certificates.
pub(super) const CERTIFICATE_KEY: &str = "tls.crt";
/// The key of a pair's private key.
pub(super) const PRIVATE_KEY: &str = "tls.key";
/// The key of what an issuer is asked for.
pub(super) const REQUEST_KEY: &str = "tls.csr";
/// The key of the bundle.
pub(super) const BUNDLE_KEY: &str = "ca-bundle.crt";
/// Where the authority's previous CAs are, beside its pair.
pub(super) const PREVIOUS: &str = "previous-cas.pem";
/// Where older releases have them. The next write of the authority removes it.
pub(super) const PREVIOUS_BEFORE: &str = "lineage.pem";
/// The key of a secret with user data.
pub(super) const USER_DATA: &str = "userData";

/// The label of user data that is made from the bundle.
pub(super) const MANAGED: &str =
    "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";
/// The annotation by which an administrator asks for a rotation: any new value.
pub(super) const ROTATE: &str = "machineconfiguration.openshift.io/rotate-certificate";
/// The word in its value by which it is done even if machines are locked out.
pub(super) const FORCE: &str = "--force";
/// The annotation of the CA's secret by which an administrator distrusts CAs: their fingerprints or
/// common names, with commas between them.
pub(super) const DISTRUST: &str = "machineconfiguration.openshift.io/distrust-certificates";
/// The value that was done last.
pub(super) const ROTATED: &str = "machineconfiguration.openshift.io/rotate-certificate-handled";
/// The SHA-256 of the serving certificate over which a new CA was forced: that one is replaced, whoever
/// is locked out by it, and no later one.
pub(super) const FORCED: &str = "machineconfiguration.openshift.io/forced-over-certificate-sha256";
/// Who issued the CA, where that was an issuer, and who is asked for one.
pub(super) const CA_ISSUER: &str = "machineconfiguration.openshift.io/ca-issuer";
/// When it was asked for, and how many requests before were for naught.
pub(super) const REQUESTED: &str = "machineconfiguration.openshift.io/requested-at";
pub(super) const REQUESTED_BEFORE: &str = "machineconfiguration.openshift.io/requested-before";
pub(super) const NOT_BEFORE: &str = "auth.openshift.io/certificate-not-before";
pub(super) const NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";
pub(super) const ISSUER: &str = "auth.openshift.io/certificate-issuer";
/// The names that the reference's controller would put into the serving pair: it makes one anew that
/// says others.
pub(super) const HOSTNAMES: &str = "auth.openshift.io/certificate-hostnames";
/// The SHA-256 of the certificate that was issued here. Another one in its place was issued by
/// somebody else.
pub(super) const ISSUED: &str = "machineconfiguration.openshift.io/issued-certificate-sha256";
/// Of the serving pair's secret: whose pair it is, as the controller was told, for commands that are not: a secret and the
/// config map of the CAs that go with it, or nothing where the controller makes it.
pub(super) const EXTERNAL_PAIR: &str = "machineconfiguration.openshift.io/external-serving-pair";
pub(super) const REFRESH: &str = "certificates.openshift.io/refresh-period";
