//! A Kubernetes cluster on a lab, for tests: the real API server and controllers, with etcd, on one host, and pods on
//! others, without containers.
//!
//! The hosts of the pods are the cluster's machines. A pod is a [guest](switchback_lab::Guest) of its machine: a network
//! namespace behind a bridge. The files of all pods are those of this machine; instead of a container's image runs a
//! program of a table. A volume is a directory of the pod's or of the machine's own, whose path takes the place of the
//! mount's in the container's environment and arguments.
//!
//! In place of the scheduler, pods go to machines in turn, as far as `nodeSelector` allows, and those of a DaemonSet to
//! their own. In place of a kubelet for each machine, tasks of this process run the pods. They honour: `command`, `args`,
//! `env` (values, fields, keys of Secrets and ConfigMaps), volumes of Secrets, ConfigMaps, empty directories and paths of the
//! machine, `readinessProbe` over HTTP and TCP, `preStop` with `sleep`, `restartPolicy`, `terminationGracePeriodSeconds`,
//! and `hostNetwork`. What else a pod asks for is ignored, unless it cannot run without: then its container waits with a
//! message that says so.
//!
//! There is no proxy for Services and no DNS.

mod apply;
mod certificates;
mod container;
mod control_plane;
mod error;
mod kubelet;
mod kubernetes;
mod machine;
mod pod;
mod probe;
mod scheduler;
mod status;
mod wait;

pub use error::{Error, Result};
pub use kubernetes::{Image, Kubernetes, Options};
