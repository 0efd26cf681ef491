//! Who a client is, and what it may do.

mod authenticator;
mod authorizer;
mod service_accounts;
mod token_file;
mod user;

pub(crate) use authenticator::{Authenticator, impersonated};
pub use authorizer::AuthorizationMode;
pub(crate) use authorizer::{Attributes, Authorizer};
pub(crate) use service_accounts::ServiceAccounts;
pub use token_file::{TokenFile, TokenFileError};
pub(crate) use user::MASTERS;
pub use user::User;
