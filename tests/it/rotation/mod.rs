//! Rotations, decided on in memory and stored by nobody: what every place that keeps certificates
//! does.

mod external;
mod issued;
mod limits;
pub(crate) mod model;
mod rules;
pub(crate) mod world;
