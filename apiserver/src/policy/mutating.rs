//! The plugin `MutatingAdmissionPolicy`.

use std::borrow::Cow;
use std::sync::Arc;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{CauseReason, Reason, StatusCause};

use super::activation::{Bindings, POLICY_COST_MAX, Scene};
use super::constraints::{Matched, Subject};
use super::definition::{Binding, Definition, Mutation};
use super::index::{Hook, Index};
use super::patch::{Mutated, MutationError, apply_configuration, apply_json_patch};
use super::{is_exempt, params};
use crate::admission::{Attributes, Calls, Decision, Operation, Phase, Plugin};

/// The name of the plugin.
const NAME: &str = "MutatingAdmissionPolicy";

/// Changes objects as mutating policies want it.
#[derive(Debug)]
pub(crate) struct MutatingPolicies(Index);

impl MutatingPolicies {
    pub(crate) fn new() -> Self {
        Self(Index::mutating())
    }
}

impl Plugin for MutatingPolicies {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Mutate
            && request.operation != Operation::Delete
            && !is_exempt(request)
            && self.0.is_used(&request.front.catalog)
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        Box::pin(self.change(request, object))
    }
}

/// A policy with one of its bindings and one of the parameters of that.
struct Invocation {
    policy: Arc<Definition>,
    binding: Arc<Binding>,
    matched: Matched,
    param: params::Param,
}

/// The names of a policy, a binding, and a parameter with its namespace.
type Key = (String, String, String, String);

type Called = Calls<Key>;

/// Why a policy refuses a request.
struct Refusal {
    message: String,
    reason: Option<Reason>,
}

impl Invocation {
    fn key(&self) -> Key {
        let text = |name: &str| {
            let metadata = self.param.as_ref().and_then(|param| param.get("metadata"));
            let text = metadata.and_then(|metadata| metadata.get(name)?.as_str());
            text.unwrap_or_default().to_owned()
        };
        (
            self.policy.name.clone(),
            self.binding.name.clone(),
            text("namespace"),
            text("name"),
        )
    }
}

fn refusal(
    policy: &Definition,
    binding: Option<&Binding>,
    message: &str,
    reason: Option<Reason>,
) -> Option<Refusal> {
    if policy.ignores_failures {
        return None;
    }
    let message = match binding {
        Some(binding) => format!(
            "policy '{}' with binding '{}' denied request: {message}",
            policy.name, binding.name
        ),
        None => format!("policy {:?} denied request: {message}", policy.name),
    };
    Some(Refusal { message, reason })
}

impl MutatingPolicies {
    async fn change(
        &self,
        request: &Attributes<'_>,
        mut object: Option<&mut JsonObject>,
    ) -> Result<(), RequestError> {
        let hooks = self.0.hooks(&request.front.catalog).await?;
        if hooks.is_empty() {
            return Ok(());
        }
        let subject = Subject::new(request);
        let mut refusals = Vec::new();
        let mut invocations = Vec::new();
        for hook in hooks.iter() {
            let of = invocations_of(hook, &subject, object.as_deref(), &mut refusals);
            invocations.extend(of.await);
        }
        if !invocations.is_empty() {
            begin(request, object.as_deref());
            let called =
                call_all(&subject, &invocations, object.as_deref_mut(), &mut refusals).await;
            let memory = request.memory;
            memory.with(NAME, |calls: &mut Called| calls.end(object.as_deref()));
            called?;
        }
        let Some(first) = refusals.first() else {
            return Ok(());
        };
        let mut status = request.forbidden(object.as_deref(), "");
        status.message.clone_from(&first.message);
        // The code is that of a forbidden request, also with another reason.
        if let Some(reason) = first.reason {
            status.reason = Some(reason);
        }
        let causes = refusals
            .into_iter()
            .map(|refusal| StatusCause::new(CauseReason("".into()), refusal.message));
        Err(status.with_causes(causes).into())
    }
}

/// Lets all policies be called again whose objects others have changed since.
fn begin(request: &Attributes<'_>, object: Option<&JsonObject>) {
    if request.memory.is_reinvocation() {
        let memory = request.memory;
        memory.with(NAME, |calls: &mut Called| calls.begin_again(object));
    }
}

/// Returns how a policy is called.
async fn invocations_of(
    hook: &Hook,
    subject: &Subject<'_>,
    object: Option<&JsonObject>,
    refusals: &mut Vec<Refusal>,
) -> Vec<Invocation> {
    let policy = &hook.policy;
    let mut invocations = Vec::new();
    let mut fail = |binding: Option<&Binding>, error: &str| {
        let what = if binding.is_some() {
            "binding"
        } else {
            "policy"
        };
        let message = format!("failed to configure {what}: {error}");
        refusals.extend(refusal(policy, binding, &message, None));
    };
    let matched = match policy.constraints.matched(subject, object).await {
        Ok(Some(matched)) => matched,
        Ok(None) => return invocations,
        Err(error) => {
            fail(None, &error.status().message);
            return invocations;
        }
    };
    let resource = match params::resource(&subject.request.front.catalog, policy) {
        Ok(resource) => resource,
        Err(error) => {
            fail(None, &error);
            return invocations;
        }
    };
    for binding in &hook.bindings {
        if let Some(constraints) = &binding.constraints {
            match constraints.matched(subject, object).await {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(error) => {
                    fail(Some(binding), &error.status().message);
                    continue;
                }
            }
        }
        let namespace = subject.request.namespace;
        let reference = binding.param_ref.as_ref();
        match params::collect(resource.as_ref(), reference, namespace).await {
            Ok(params) => invocations.extend(params.into_iter().map(|param| Invocation {
                policy: policy.clone(),
                binding: binding.clone(),
                matched: matched.clone(),
                param,
            })),
            Err(error) => fail(Some(binding), &error),
        }
    }
    invocations
}

/// Calls policies one after another.
///
/// # Errors
/// The request fails whatever the policies want in case of failures.
async fn call_all(
    subject: &Subject<'_>,
    invocations: &[Invocation],
    mut object: Option<&mut JsonObject>,
    refusals: &mut Vec<Refusal>,
) -> Result<(), RequestError> {
    let request = subject.request;
    let namespace = subject.namespace_object().await?;
    for invocation in invocations {
        let matched = &invocation.matched;
        let converted = async {
            let old = matched.convert(request, request.old).await?;
            Ok((matched.convert(request, object.as_deref()).await?, old))
        };
        let (current, old) = match converted.await {
            Ok(converted) => converted,
            Err(error) => {
                let error: RequestError = error;
                let message = format!("failed to configure policy: {error}");
                refusals.extend(refusal(&invocation.policy, None, &message, None));
                continue;
            }
        };
        let scene = Scene::new(
            subject,
            matched,
            current.as_deref(),
            old.as_deref(),
            namespace,
        );
        let params = params::value(&invocation.param);
        let evaluator = invocation.policy.evaluator();
        let conditions = &evaluator.conditions;
        match conditions
            .hold(&scene, params.as_ref(), &evaluator.variables)
            .await
        {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                let (policy, binding) = (&invocation.policy, Some(&*invocation.binding));
                refusals.extend(refusal(policy, binding, &error, Some(Reason::Invalid)));
                continue;
            }
        }
        let key = invocation.key();
        let is_called = !request.memory.is_reinvocation()
            || request
                .memory
                .with(NAME, |calls: &mut Called| calls.is_due(&key))
                .unwrap_or_default();
        if !is_called {
            continue;
        }
        let current = current.map(Cow::into_owned);
        if let (Some(object), Some(current)) = (object.as_deref_mut(), current) {
            let mut call = Call {
                subject,
                invocation,
                scene,
                params,
                refusals,
            };
            call.mutate(object, current).await?;
        }
        if invocation.policy.is_reinvoked {
            request
                .memory
                .with(NAME, |calls: &mut Called| calls.add(key));
        }
    }
    Ok(())
}

/// One call of a policy.
struct Call<'a> {
    subject: &'a Subject<'a>,
    invocation: &'a Invocation,
    scene: Scene,
    params: Option<revstore_cel::Value>,
    refusals: &'a mut Vec<Refusal>,
}

impl Call<'_> {
    /// Changes an object. `current` is the object in the version as which the request matches.
    async fn mutate(
        &mut self,
        object: &mut JsonObject,
        mut current: JsonObject,
    ) -> Result<(), RequestError> {
        let request = self.subject.request;
        let matched = &self.invocation.matched;
        let mut has_changed = false;
        for mutation in &self.invocation.policy.evaluator().mutations {
            match self.mutated(mutation, &current).await {
                Ok(Some(mutated)) => {
                    has_changed |= mutated != current;
                    self.scene.set_object(&mutated);
                    current = mutated;
                }
                Ok(None) => {}
                Err(MutationError::Failed(error)) => return Err(error),
                Err(MutationError::Refused(error)) => {
                    let invocation = self.invocation;
                    let (policy, binding) = (&invocation.policy, Some(&*invocation.binding));
                    let refusal = refusal(policy, binding, &error, Some(Reason::Invalid));
                    self.refusals.extend(refusal);
                }
            }
        }
        if has_changed {
            let new = matched.convert_back(request, current).await;
            *object = new.map_err(|error| {
                RequestError::Internal(format!("failed to convert object: {error}"))
            })?;
            request.memory.with(NAME, Called::repeat);
            request.memory.request_reinvocation();
        }
        Ok(())
    }

    /// Returns what a mutation makes of an object, unless it changes nothing.
    async fn mutated(
        &self,
        mutation: &Mutation,
        object: &JsonObject,
    ) -> Result<Option<JsonObject>, MutationError> {
        let variables = &self.invocation.policy.evaluator().variables;
        let mut bindings = Bindings::new(&self.scene, variables, self.params.as_ref(), true);
        let mut budget = POLICY_COST_MAX;
        let made = bindings.evaluate(&mutation.expression, &mut budget).await;
        let made = made.and_then(|made| made).map_err(MutationError::Refused)?;
        let mutated = Mutated {
            request: self.subject.request,
            matched: &self.invocation.matched,
        };
        if mutation.is_json_patch {
            apply_json_patch(mutated, object, &made)
        } else {
            apply_configuration(mutated, object, &made).map(Some)
        }
    }
}
