//! Rotations, decided on in memory and stored by nobody: what every place that keeps certificates
//! does.

mod model;
mod rules;
mod world;
