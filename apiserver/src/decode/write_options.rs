//! The options of creates, updates and patches.

use revstore_watch_cache::api::Query;
use revstore_watch_cache::status::{FieldPath, ResourceName, Status, StatusCause};
use serde_json::json;

/// The largest length of the name of a field manager, in bytes.
pub const MAX_FIELD_MANAGER_BYTES: usize = 128;

/// What happens to unknown and duplicate fields in a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are ignored.
    Ignore,
    /// They are ignored, and the response has a `Warning` header for each.
    #[default]
    Warn,
    /// The body is refused.
    Strict,
}

impl FieldValidation {
    /// The values of the option.
    const VALUES: [&str; 4] = ["", "Ignore", "Strict", "Warn"];

    fn from_name(name: &str) -> Option<Self> {
        match name {
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// The options of a create, an update or a patch. Corresponds to `metav1.CreateOptions`, `UpdateOptions` and
/// `PatchOptions`.
///
/// ```
/// use revstore_apiserver::decode::{FieldValidation, WriteOptions};
/// use revstore_watch_cache::api::Query;
/// let query = Query::parse("dryRun=All&fieldManager=ci&fieldValidation=Strict");
/// let options = WriteOptions::create(&query)?;
/// assert!(options.dry_run);
/// assert_eq!(options.field_manager, "ci");
/// assert_eq!(options.field_validation, FieldValidation::Strict);
/// let error = WriteOptions::update(&Query::parse("dryRun=yes")).unwrap_err();
/// assert_eq!(error.code, 422);
/// # Ok::<(), Box<revstore_watch_cache::status::Status>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Whether the write is only checked.
    pub dry_run: bool,
    /// The name of the field manager, or empty (see [`manager_or_user_agent`]).
    pub field_manager: String,
    /// What happens to unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Whether an apply takes fields from other managers.
    pub force: bool,
}

impl WriteOptions {
    /// Reads the options of a create.
    ///
    /// # Errors
    /// 422 if a value is not supported.
    pub fn create(query: &Query) -> Result<Self, Box<Status>> {
        Self::read(query, "CreateOptions", Vec::new())
    }

    /// Reads the options of an update.
    ///
    /// # Errors
    /// 422 if a value is not supported.
    pub fn update(query: &Query) -> Result<Self, Box<Status>> {
        Self::read(query, "UpdateOptions", Vec::new())
    }

    /// Reads the options of a patch. With `apply` it is a server-side apply, which needs a field manager.
    ///
    /// # Errors
    /// 422 if a value is not supported.
    pub fn patch(query: &Query, apply: bool) -> Result<Self, Box<Status>> {
        let manager = query.first("fieldManager").unwrap_or_default();
        let mut causes = Vec::new();
        if apply && manager.is_empty() {
            causes.push(StatusCause::required(
                "fieldManager",
                "is required for apply patch",
            ));
        }
        if !apply && query.first("force").is_some() {
            causes.push(StatusCause::forbidden(
                "force",
                "may not be specified for non-apply patch",
            ));
        }
        Self::read(query, "PatchOptions", causes)
    }

    fn read(query: &Query, kind: &str, mut causes: Vec<StatusCause>) -> Result<Self, Box<Status>> {
        let field_manager = query.first("fieldManager").unwrap_or_default();
        causes.extend(field_manager_causes(field_manager, "fieldManager"));
        let dry_run = dry_run(query.all("dryRun"), &mut causes);
        let directive = query.first("fieldValidation").unwrap_or_default();
        let field_validation = FieldValidation::from_name(directive);
        if field_validation.is_none() {
            causes.push(StatusCause::not_supported(
                "fieldValidation",
                directive,
                &FieldValidation::VALUES,
            ));
        }
        refuse(kind, causes)?;
        Ok(Self {
            dry_run,
            field_manager: field_manager.to_owned(),
            field_validation: field_validation.unwrap_or_default(),
            force: query.flag("force").unwrap_or_default(),
        })
    }
}

/// Returns an error if there are causes.
pub(super) fn refuse(kind: &str, causes: Vec<StatusCause>) -> Result<(), Box<Status>> {
    if causes.is_empty() {
        return Ok(());
    }
    let options = ResourceName::new("meta.k8s.io", kind);
    Err(Box::new(Status::invalid(&options, "", causes)))
}

/// Returns whether `dryRun` is set; its only value is `All`.
pub(super) fn dry_run<'a>(
    values: impl Iterator<Item = &'a str>,
    causes: &mut Vec<StatusCause>,
) -> bool {
    let values: Vec<_> = values.collect();
    if values.iter().any(|value| *value != "All") {
        causes.push(StatusCause::not_supported(
            "dryRun",
            json!(values),
            &["All"],
        ));
    }
    !values.is_empty()
}

/// Returns what is wrong with the name of a field manager.
pub(crate) fn field_manager_causes(
    name: &str,
    field: impl Into<FieldPath>,
) -> impl Iterator<Item = StatusCause> {
    let field = field.into();
    let too_long = (name.len() > MAX_FIELD_MANAGER_BYTES)
        .then(|| StatusCause::too_long(field.clone(), MAX_FIELD_MANAGER_BYTES));
    let unprintable = name
        .char_indices()
        .filter(|(_, letter)| !is_printable(*letter));
    let unprintable = unprintable.map(move |(position, letter)| {
        let detail = format!(
            "invalid character U+{:04X} (at position {position})",
            u32::from(letter)
        );
        StatusCause::invalid(field.clone(), name, &detail)
    });
    too_long.into_iter().chain(unprintable)
}

/// Returns whether a character is a letter, a mark, a number, punctuation, a symbol or a space.
fn is_printable(letter: char) -> bool {
    // The standard library only tells it in this way. It escapes quotes as well, and a mark at the
    // beginning of a text.
    let text: String = ['a', letter].into_iter().collect();
    matches!(letter, '"' | '\'' | '\\') || text.escape_debug().count() == 2
}

/// Returns the name of the manager of a write: the option, or the beginning of the header `User-Agent` up to
/// the first slash, without characters that are not printable and not longer than
/// [`MAX_FIELD_MANAGER_BYTES`].
///
/// ```
/// use revstore_apiserver::decode::manager_or_user_agent;
/// assert_eq!(manager_or_user_agent("", "kubectl/v1.36.0 (linux/amd64)"), "kubectl");
/// assert_eq!(manager_or_user_agent("ci", "kubectl/v1.36.0 (linux/amd64)"), "ci");
/// ```
pub fn manager_or_user_agent(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for letter in product.chars().filter(|letter| is_printable(*letter)) {
        if name.len() + letter.len_utf8() > MAX_FIELD_MANAGER_BYTES {
            break;
        }
        name.push(letter);
    }
    name
}

#[cfg(test)]
mod tests {
    use revstore_watch_cache::api::Query;

    use super::{FieldValidation, WriteOptions, manager_or_user_agent};

    fn message(query: &str) -> String {
        let status = WriteOptions::create(&Query::parse(query)).unwrap_err();
        assert_eq!(status.code, 422);
        let prefix = "CreateOptions.meta.k8s.io \"\" is invalid: ";
        status.message.strip_prefix(prefix).unwrap().to_owned()
    }

    #[test]
    fn values_that_are_not_supported_are_refused() {
        for (query, expected) in [
            (
                "dryRun=Some",
                "dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
            ),
            (
                "dryRun=",
                "dryRun: Unsupported value: [\"\"]: supported values: \"All\"",
            ),
            (
                "dryRun=All&dryRun=x",
                "dryRun: Unsupported value: [\"All\",\"x\"]: supported values: \"All\"",
            ),
            (
                "fieldValidation=Sometimes",
                "fieldValidation: Unsupported value: \"Sometimes\": supported values: \"\", \
                 \"Ignore\", \"Strict\", \"Warn\"",
            ),
            (
                "fieldManager=a%07b",
                "fieldManager: Invalid value: \"a\\ab\": invalid character U+0007 (at position 1)",
            ),
            (
                &format!("fieldManager={}", "x".repeat(129)),
                "fieldManager: Too long: may not be more than 128 bytes",
            ),
        ] {
            assert_eq!(message(query), expected, "{query}");
        }
    }

    #[test]
    fn supported_values_are_read() {
        let read = |query: &str| WriteOptions::create(&Query::parse(query)).unwrap();
        assert_eq!(read(""), WriteOptions::default());
        assert_eq!(
            read("fieldValidation=").field_validation,
            FieldValidation::Warn
        );
        assert_eq!(
            read("fieldValidation=Ignore").field_validation,
            FieldValidation::Ignore
        );
        assert!(read("dryRun=All&dryRun=All").dry_run);
        for manager in ["x".repeat(128), "e\u{301} \"'\\Ωß".to_owned()] {
            let query = format!("fieldManager={}", manager.replace(' ', "+"));
            assert_eq!(read(&query).field_manager, manager);
        }
    }

    #[test]
    fn only_applies_are_forced_and_they_need_a_manager() {
        let patch = |query: &str, apply| WriteOptions::patch(&Query::parse(query), apply);
        let message = |query, apply| patch(query, apply).unwrap_err().message;
        assert_eq!(
            message("", true),
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required \
             for apply patch"
        );
        assert_eq!(
            message("force=false", false),
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for \
             non-apply patch"
        );
        assert!(patch("fieldManager=a&force=1", true).unwrap().force);
        assert!(!patch("fieldManager=a", true).unwrap().force);
    }

    #[test]
    fn the_user_agent_names_the_manager() {
        for (agent, manager) in [
            ("mytool/1.2 (linux)", "mytool"),
            ("plain", "plain"),
            ("", ""),
            ("a\u{7}b\u{200b}c/d", "abc"),
        ] {
            assert_eq!(manager_or_user_agent("", agent), manager);
        }
        assert_eq!(manager_or_user_agent("", &"é".repeat(100)).len(), 128);
    }
}
