//! Who a client is, and what it may do.

mod authenticator;
mod authorizer;
mod client;
mod impersonation;
mod rbac;
mod service_accounts;
mod token_file;
mod user;

pub(crate) use authenticator::{Authenticated, Authenticator, Credentials};
pub use authorizer::AuthorizationMode;
pub(crate) use authorizer::{Attributes, Authorizer};
pub(crate) use client::Client;
pub(crate) use impersonation::Impersonation;
pub(crate) use rbac::{
    Follower, GROUP as RBAC_GROUP, PolicyKind, PolicyWrite, Rule, create_bootstrap_policy,
};
pub(crate) use service_accounts::{
    CONFIGURATION_PATH, Documents, KEYS_PATH, ServiceAccounts, check_objects,
};
pub use service_accounts::{KeyFileError, ServiceAccountOptions};
pub use token_file::{TokenFile, TokenFileError};
pub(crate) use user::MASTERS;
pub use user::User;
