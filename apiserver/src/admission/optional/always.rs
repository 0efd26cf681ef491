//! The plugins that allow or refuse everything.

use revstore_watch_cache::registry::JsonObject;

use crate::admission::{Attributes, Decision, Phase, Plugin};

/// The plugin `AlwaysAdmit`.
#[derive(Debug)]
pub(crate) struct AlwaysAdmit;

impl Plugin for AlwaysAdmit {
    fn handles(&self, _: Phase, _: &Attributes<'_>) -> bool {
        false
    }
}

/// The plugin `AlwaysDeny`.
#[derive(Debug)]
pub(crate) struct AlwaysDeny;

impl Plugin for AlwaysDeny {
    fn handles(&self, phase: Phase, _: &Attributes<'_>) -> bool {
        phase == Phase::Mutate
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        let detail = "admission control is denying all modifications";
        let refusal = request.forbidden(object.as_deref(), detail);
        Box::pin(async { Err(refusal.into()) })
    }
}
