//! Examples at the end of `--help` and of each manual page. A line that begins with `#` describes the next one.
//! `tests/it/command_line.rs` parses each of them.

pub(super) const ALL: &str = "\
Examples:
  # Try it: the sample cluster, with certificates of its own
  machine-config-server serve ignition-fixtures
  # Does a machine boot from this file?
  machine-config-server certs check --pointer worker.ign --connect mcs.example.com:22623
  # What a command takes
  machine-config-server serve --help";

pub(super) const BOOTSTRAP: &str = "\
Examples:
  # As the reference server is started on a bootstrap machine
  machine-config-server bootstrap --server-basedir /etc/mcs/bootstrap \\
    --bootstrap-kubeconfig /etc/kubernetes/kubeconfig \\
    --cert /etc/ssl/mcs/tls.crt --key /etc/ssl/mcs/tls.key
  # With the CA of a registry, from a file below the base directory
  machine-config-server bootstrap --bootstrap-certs registry.example.com:5000=registry-ca.crt";

pub(super) const START: &str = "\
Examples:
  # In a pod, as its service account
  machine-config-server start --apiserver-url https://api-int.example.com:6443
  # Elsewhere, and also while the API server is away
  machine-config-server start --apiserver-url https://api-int.example.com:6443 \\
    --kubeconfig FILE --cache-dir /var/cache/machine-config-server
  # All machines come through one balancer, which says whom it connects; TLS 1.3 alone is spoken
  machine-config-server start --apiserver-url https://api-int.example.com:6443 \\
    --proxy-from 192.0.2.8 --tls-min-version VersionTLS13";

pub(super) const SERVE: &str = "\
Examples:
  # Manifests of a cluster, for machines that reach this server by this name
  oc get mcp,mc,controllerconfig -o yaml > manifests/dump.yaml
  machine-config-server serve manifests --host mcs.example.com
  # Certificates elsewhere, metrics for everybody, no port without TLS
  machine-config-server serve manifests --state-dir /var/lib/machine-config-server \\
    --metrics-address 0.0.0.0:8797 --insecure-port 0";

pub(super) const CONTROLLER: &str = "\
Examples:
  # In a pod, as its service account, in a cluster without an Infrastructure object
  machine-config-server controller --host mcs.example.com
  # Elsewhere, with metrics for everybody
  machine-config-server controller --kubeconfig FILE --metrics-address 0.0.0.0:8798";

pub(super) const ISSUER: &str = "\
Examples:
  # In a pod, as its service account
  machine-config-server issuer
  # Elsewhere, with the CAs of cluster issuers where cert-manager has them
  machine-config-server issuer --kubeconfig FILE --cluster-resource-namespace cert-manager";

pub(super) const INSPECT: &str = "\
Examples:
  # As a machine that has this user data fetches it
  machine-config-server inspect --pointer certs/user-data/worker.ign --as 3.4
  # From a server, and from a directory with no server at all
  machine-config-server inspect https://mcs.example.com:22623 worker
  machine-config-server inspect ignition-fixtures worker
  # What another pool has otherwise; one file as it will be on disk
  machine-config-server inspect ignition-fixtures worker --diff master
  machine-config-server inspect ignition-fixtures worker --file /etc/hostname
  # What a change of manifests would do to the machines of each pool
  machine-config-server inspect manifests --diff manifests.new";

pub(super) const MACHINES: &str = "\
Examples:
  # Where a server runs
  machine-config-server machines
  # One machine, from a server elsewhere
  machine-config-server machines 192.0.2.17 --from mcs.example.com:8797
  # For a script
  machine-config-server machines --json";

pub(super) const RENDER: &str = "\
Examples:
  # What a server of this directory would answer
  machine-config-server render worker ignition-fixtures --spec 3.4 > worker.ign
  # The pointer config by which a machine fetches it
  machine-config-server render worker --pointer --server mcs.example.com:22623
  # From a cluster
  machine-config-server render worker --kubeconfig FILE \\
    --apiserver-url https://api-int.example.com:6443 --bootstrap-token-dir token";

pub(super) const VALIDATE: &str = "\
Examples:
  # In the CI of a repository that holds the manifests
  machine-config-server validate manifests --strict
  # For a script
  machine-config-server validate manifests --json";

pub(super) const NODE_CA: &str = "\
Examples:
  # For CRI-O, podman and docker, in a pod
  machine-config-server node-ca
  # For containerd, with metrics for everybody
  machine-config-server node-ca --layout containerd --metrics-address 0.0.0.0:8799
  # A folder of your own, to see what it does
  machine-config-server node-ca --kubeconfig FILE --dir certs.d";

pub(super) const TOKENS: &str = "\
Examples:
  # What is known of tokens here, and in a cluster
  machine-config-server tokens list
  machine-config-server tokens list --kubeconfig FILE
  # For machines whose pointer configs are not made here
  machine-config-server tokens add rack-7 --pool worker --until 30d";

pub(super) const TOKENS_ADD: &str = "\
Examples:
  machine-config-server tokens add rack-7 --pool worker --until 2027-01-31
  # For two pools, in a cluster
  machine-config-server tokens add pxe --pool worker,infra --until never --kubeconfig FILE";

pub(super) const TOKENS_LIST: &str = "\
Examples:
  machine-config-server tokens list --state-dir /var/lib/machine-config-server
  machine-config-server tokens list --kubeconfig FILE";

pub(super) const TOKENS_REVOKE: &str = "\
Examples:
  # By its name, and by its id
  machine-config-server tokens revoke rack-7
  machine-config-server tokens revoke 24e1b78bdcd4 --kubeconfig FILE";

pub(super) const TOKENS_ROTATE: &str = "\
Examples:
  # Those of all pointer configs
  machine-config-server tokens rotate
  # Of one pool, in a cluster
  machine-config-server tokens rotate --pool worker --kubeconfig FILE";

pub(super) const CERTS: &str = "\
Examples:
  # What `serve` keeps here, and what the controller keeps in a cluster
  machine-config-server certs show
  machine-config-server certs show --kubeconfig FILE
  # Is all in order? Exits with 1 if not
  machine-config-server certs check --state-dir /var/lib/machine-config-server";

pub(super) const CERTS_SHOW: &str = "\
Examples:
  machine-config-server certs show --state-dir /var/lib/machine-config-server
  machine-config-server certs show --kubeconfig FILE";

pub(super) const CERTS_CHECK: &str = "\
Examples:
  # Whatever needs an administrator
  machine-config-server certs check
  # User data, judged by what is kept here
  machine-config-server certs check --pointer certs/user-data/worker.ign
  # The same, judged by a server that runs
  machine-config-server certs check --pointer worker.ign --connect mcs.example.com:22623
  # User data of a cluster, judged by what its controller keeps
  machine-config-server certs check --pointer worker.ign --kubeconfig FILE";

pub(super) const CERTS_ROTATE: &str = "\
Examples:
  # A new serving pair
  machine-config-server certs rotate
  # A new CA first, in a cluster
  machine-config-server certs rotate --ca --kubeconfig FILE
  # Another kind of key
  machine-config-server certs rotate --key-algorithm rsa4096";

pub(super) const CERTS_DISTRUST: &str = "\
Examples:
  # Who could not boot any more? Nothing is changed
  machine-config-server certs distrust machine-config-server-ca@1795287382-823b
  # Do it
  machine-config-server certs distrust machine-config-server-ca@1795287382-823b --yes
  # A CA by its certificate, in a cluster
  machine-config-server certs distrust leaked.crt --kubeconfig FILE";

pub(super) const CMP: &str = "\
Examples:
  # What enrolling takes
  machine-config-server cmp enroll --help";

pub(super) const CMP_ENROLL: &str = "\
Examples:
  # A first certificate, by a password that the CA gave out
  machine-config-server cmp enroll --url https://ca.example.com/pkix --ca-name servers \\
    --cacert https-ca.crt --secret-file password --sender-kid 4711 \\
    --subject CN=mcs.example.com,O=Example --dns mcs.example.com \\
    --key-out tls.key --out tls.crt --cas-out ca.crt
  # What somebody's request asks for
  machine-config-server cmp enroll --url https://ca.example.com/pkix --cacert https-ca.crt \\
    --secret-file password --sender-kid 4711 --csr server.csr --out tls.crt
  # A renewal, signed with the certificate that there is
  machine-config-server cmp enroll --url https://ca.example.com/pkix --cacert https-ca.crt \\
    --renew tls.crt --key tls.key --trusted ca.crt --key-out new.key --out new.crt";

pub(super) const COMPLETIONS: &str = "\
Examples:
  # For this shell
  source <(machine-config-server completions bash)
  # For all users
  machine-config-server completions fish > /etc/fish/completions/machine-config-server.fish";

pub(super) const VERSION: &str = "\
Examples:
  machine-config-server version";
