//! The Gateway API of Kubernetes.

mod objects;
mod translation;

pub use objects::{Objects, Place};
pub use translation::{KEY_FILE, Settings, Translation, machine_name, translate};
