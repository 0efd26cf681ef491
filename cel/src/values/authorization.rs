//! Questions about what a user may do, and their answers.

use std::fmt;
use std::sync::Arc;

/// Answers what users may do.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Returns whether an access is allowed.
    fn check(&self, access: &AccessAttributes) -> AccessDecision;
}

/// An access of which an expression asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessAttributes {
    /// The user: that of the request, or a service account as `system:serviceaccount:NAMESPACE:NAME`.
    pub user: String,
    /// Whether the user is a service account that the expression names.
    pub is_service_account: bool,
    /// The verb, such as `get`.
    pub verb: String,
    /// The path, if it is no resource.
    pub path: Option<String>,
    /// The group of the resource.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The subresource, or an empty text.
    pub subresource: String,
    /// The namespace, or an empty text.
    pub namespace: String,
    /// The name, or an empty text.
    pub name: String,
    /// The selector of fields.
    pub field_selector: Option<String>,
    /// The selector of labels.
    pub label_selector: Option<String>,
}

/// The answer of an [`Authorizer`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessDecision {
    /// Whether the access is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong.
    pub error: Option<String>,
}

/// The values through which expressions ask.
#[derive(Clone, Debug)]
pub enum Authorization {
    /// The variable `authorizer`.
    Authorizer {
        /// Who answers.
        authorizer: Arc<dyn Authorizer>,
        /// The name of the user.
        user: Arc<str>,
        /// Whether the user is a service account that the expression names.
        is_service_account: bool,
    },
    /// A group, a resource or a path to ask about.
    Check(Box<Check>),
    /// An answer.
    Decision(AccessDecision),
}

/// A question that is not yet asked.
#[derive(Clone, Debug)]
pub struct Check {
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) access: AccessAttributes,
}

impl Authorization {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Authorizer { .. } => "kubernetes.authorization.Authorizer",
            Self::Check(check) if check.access.path.is_some() => {
                "kubernetes.authorization.PathCheck"
            }
            Self::Check(check) if check.access.resource.is_empty() => {
                "kubernetes.authorization.GroupCheck"
            }
            Self::Check(_) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}
