//! The checks, with the messages of kube-apiserver. A name with a number is that of a later version.

pub(super) mod host;
pub(super) mod kernel;
pub(super) mod privileges;
pub(super) mod profiles;
#[cfg(test)]
mod table;
pub(super) mod users;
pub(super) mod volumes;
