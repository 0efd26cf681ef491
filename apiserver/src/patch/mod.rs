//! JSON patches, merge patches and strategic merge patches, with kube-apiserver's deviations from the
//! standards, its limits and its errors.

mod error;
mod json;
mod kinds_schema;
mod merge;
mod schema;
mod strategic;

pub use error::{MAX_JSON_PATCH_OPERATIONS, PatchError};
pub use json::{JsonPatch, MAX_COPY_BYTES};
pub use merge::MergePatch;
pub use schema::{ListStrategy, PatchField, PatchSchema, SchemaError};
pub use strategic::StrategicPatch;

use revstore_watch_cache::status::{Reason, Status, StatusDetails};
use serde_json::Value;

use crate::decode::FieldValidation;

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' strategic merge patch.
    Strategic,
    /// A server-side apply.
    Apply,
}

impl PatchType {
    /// The formats for custom resources, in the order of kube-apiserver's error message.
    const CUSTOM: [Self; 3] = [Self::Json, Self::Merge, Self::Apply];

    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }

    /// Returns the format with the media type of a request, whose parameters are ignored.
    ///
    /// # Errors
    /// 415 for other media types, and for strategic merge patches of custom resources.
    ///
    /// ```
    /// use revstore_apiserver::patch::PatchType;
    /// let found = PatchType::of_request("application/merge-patch+json; charset=utf-8", false);
    /// assert_eq!(found, Ok(PatchType::Merge));
    /// let strategic = "application/strategic-merge-patch+json";
    /// assert_eq!(PatchType::of_request(strategic, true), Ok(PatchType::Strategic));
    /// assert_eq!(PatchType::of_request(strategic, false).unwrap_err().code, 415);
    /// ```
    pub fn of_request(content_type: &str, is_built_in: bool) -> Result<Self, Box<Status>> {
        let media_type = content_type.split(';').next().unwrap_or_default();
        let mut types = Self::CUSTOM.to_vec();
        if is_built_in {
            types.push(Self::Strategic);
        }
        if let Some(found) = types.iter().find(|known| known.media_type() == media_type) {
            return Ok(*found);
        }
        // Requests for built-in kinds are refused before kube-apiserver looks at the resource.
        Err(Box::new(if is_built_in {
            let message = "415: Unsupported Media Type";
            Status::failure(Reason::UnsupportedMediaType, message)
                .with_details(StatusDetails::default())
        } else {
            let types: Vec<_> = types.iter().map(|known| known.media_type()).collect();
            Status::unsupported_media_type(&types)
        }))
    }
}

/// A patch that was read from a request. It can be applied to several versions of an object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Patch {
    /// A JSON patch.
    Json(JsonPatch),
    /// A merge patch.
    Merge(MergePatch),
    /// A strategic merge patch.
    Strategic(StrategicPatch),
}

impl Patch {
    /// Reads a patch. Returns it with the errors of strict decoding, which are empty with
    /// [`FieldValidation::Ignore`].
    ///
    /// # Errors
    /// [`PatchError`] if the body is malformed.
    ///
    /// # Panics
    /// With [`PatchType::Apply`], which is not a patch of this kind.
    pub fn from_body(
        patch_type: PatchType,
        body: &[u8],
        validation: FieldValidation,
    ) -> Result<(Self, Vec<String>), PatchError> {
        let is_strict = validation != FieldValidation::Ignore;
        let (patch, mut strict) = match patch_type {
            PatchType::Json => {
                let (patch, strict) = JsonPatch::from_body(body, is_strict)?;
                (Self::Json(patch), strict)
            }
            PatchType::Merge => {
                let (patch, strict) = MergePatch::from_body(body, is_strict)?;
                (Self::Merge(patch), strict)
            }
            PatchType::Strategic => {
                let (patch, strict) = StrategicPatch::from_body(body)?;
                (Self::Strategic(patch), strict)
            }
            PatchType::Apply => unreachable!("an apply is not a patch of an object"),
        };
        if !is_strict {
            strict.clear();
        }
        Ok((patch, strict))
    }

    /// Applies the patch to an object. The schema is only used by strategic merge patches.
    ///
    /// The result may have unknown fields and members that are `null`, as after decoding a request.
    ///
    /// # Errors
    /// [`PatchError`] if the patch does not fit the object, or exceeds a limit.
    pub fn apply<S: PatchSchema>(&self, object: &Value, schema: S) -> Result<Value, PatchError> {
        match self {
            Self::Json(patch) => patch.apply(object),
            Self::Merge(patch) => patch.apply(object),
            Self::Strategic(patch) => patch.apply(object, schema),
        }
    }

    /// Returns the text of the patch, or of its result `patched`, in the message about a result that
    /// cannot be decoded: `patch: Invalid value: ...`.
    pub fn shown(&self, patched: &Value) -> String {
        match self {
            Self::Strategic(patch) => patch.to_string(),
            Self::Json(_) | Self::Merge(_) => patched.to_string(),
        }
    }
}
