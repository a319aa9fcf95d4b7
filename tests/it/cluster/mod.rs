//! Each command that talks to a cluster, with a real kube-apiserver and etcd.

mod check_pointer;
mod controller;
mod monitoring;
mod node_ca;
mod registry_ca;
mod server;
