//! Field selectors: requirements `f=v`, `f==v` and `f!=v`, separated by commas. [`FieldSelector`]
//! corresponds to `fields.Selector` of Kubernetes' apimachinery, and [`FieldRequirement`] to
//! `fields.Requirement`.

use crate::api::status::RequestError;

/// A field selector: a list of requirements, which must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// The requirements, in the order of the text.
    pub requirements: Vec<FieldRequirement>,
}

/// A requirement on the value of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The path of the field, such as `metadata.name`.
    pub field: String,
    /// Whether the field must be equal to the value (`true`) or different from it (`false`).
    pub equal: bool,
    /// The value. An absent field has the empty value.
    pub value: String,
}

impl FieldSelector {
    /// Returns a selector that requires one field to have a value.
    pub fn equals(field: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            requirements: vec![FieldRequirement {
                field: field.into(),
                equal: true,
                value: value.into(),
            }],
        }
    }

    /// Parses a selector. In a value, a backslash escapes `,`, `=` and `\`.
    ///
    /// # Errors
    /// [`RequestError::BadRequest`] if the text is not a valid selector.
    ///
    /// ```
    /// use revstore_watch_cache::selector::FieldSelector;
    /// let selector = FieldSelector::parse(r"spec.nodeName!=a\,b,status.phase=Running")?;
    /// assert_eq!(selector.requirements[0].value, "a,b");
    /// assert!(FieldSelector::parse("spec.nodeName").is_err());
    /// # Ok::<(), revstore_watch_cache::RequestError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let terms = split_unescaped(text);
        let requirements = terms
            .into_iter()
            .filter(|term| !term.is_empty())
            .map(|term| parse_term(text, term))
            .collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }
}

impl FieldRequirement {
    /// Returns whether the requirement matches the value of the field, which is `None` if the object does
    /// not have the field.
    pub(crate) fn matches(&self, value: Option<&str>) -> bool {
        (value.unwrap_or_default() == self.value) == self.equal
    }
}

/// Splits the text at commas that are not escaped.
fn split_unescaped(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (offset, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..offset]);
                start = offset + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn parse_term(selector: &str, term: &str) -> Result<FieldRequirement, RequestError> {
    let invalid = || {
        RequestError::BadRequest(format!(
            "invalid selector: '{selector}'; can't understand '{term}'"
        ))
    };
    let position = term.find('=').ok_or_else(invalid)?;
    let (field, equal) = match term[..position].strip_suffix('!') {
        Some(field) => (field, false),
        None => (&term[..position], true),
    };
    let value = &term[position + 1..];
    let value = if equal {
        value.strip_prefix('=').unwrap_or(value)
    } else {
        value
    };
    Ok(FieldRequirement {
        field: field.to_owned(),
        equal,
        value: unescape(value).ok_or_else(invalid)?,
    })
}

/// Removes the backslashes of escape sequences. Returns `None` if the value contains an unknown escape
/// sequence or an unescaped `=`.
fn unescape(value: &str) -> Option<String> {
    let mut plain = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => plain.push(letters.next().filter(|next| ",=\\".contains(*next))?),
            '=' => return None,
            letter => plain.push(letter),
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::FieldSelector;

    #[test]
    fn wc_353_field_selectors_have_escapes_and_invalid_ones_return_400() {
        let parsed = FieldSelector::parse(r"a=1,b==2,c!=x\=\\,d=").unwrap();
        let requirements: Vec<_> = parsed
            .requirements
            .iter()
            .map(|r| (r.field.as_str(), r.equal, r.value.as_str()))
            .collect();
        assert_eq!(
            requirements,
            [
                ("a", true, "1"),
                ("b", true, "2"),
                ("c", false, r"x=\"),
                ("d", true, "")
            ]
        );
        assert!(FieldSelector::parse("").unwrap().requirements.is_empty());
        for invalid in ["a", "a!b", r"a=\q", "a=b=c"] {
            let error = FieldSelector::parse(invalid).unwrap_err();
            assert_eq!(error.code(), 400, "{invalid}");
        }
    }
}
