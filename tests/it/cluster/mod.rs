//! Each command that talks to a cluster, with a real kube-apiserver and etcd.

mod check_pointer;
mod components;
mod controller;
mod health;
mod in_service;
mod monitoring;
mod node_ca;
mod node_credentials;
mod registry_auth;
mod registry_ca;
mod rendered_pools;
mod rights;
mod server;
