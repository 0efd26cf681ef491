//! The plugin `ValidatingAdmissionPolicy`.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{CauseReason, Reason, StatusCause};
use serde_json::json;

use super::activation::{Bindings, POLICY_COST_MAX, Scene};
use super::constraints::{Matched, Subject};
use super::definition::{Binding, Definition, Evaluator, Validation, Variables};
use super::index::{Hook, Index};
use super::{is_exempt, params};
use crate::admission::{Attributes, Decision, Phase, Plugin};

/// The maximum length of a message that an expression makes, in bytes. A longer one counts as none.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
/// The maximum length of an audit annotation, in bytes. A longer one is cut.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;
/// The audit annotation of validations that failed.
const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Refuses what validating policies do not allow.
#[derive(Debug)]
pub(crate) struct ValidatingPolicies(Index);

impl ValidatingPolicies {
    pub(crate) fn new() -> Self {
        Self(Index::validating())
    }
}

impl Plugin for ValidatingPolicies {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Validate && !is_exempt(request) && self.0.is_used(&request.front.catalog)
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(self.check(request, object))
    }
}

/// Why a policy refuses a request.
struct Denial {
    message: String,
    reason: String,
    /// The number of the validation.
    index: usize,
}

impl Denial {
    fn of_error(message: String) -> Self {
        Self {
            message,
            reason: String::new(),
            index: 0,
        }
    }
}

/// What a policy finds in a request.
#[derive(Default)]
struct Findings {
    denials: Vec<Denial>,
    /// The values of audit annotations by their keys.
    audits: Vec<(String, String)>,
    /// Errors of audit annotations, which refuse a request whatever the actions of a binding are.
    errors: Vec<String>,
}

impl ValidatingPolicies {
    async fn check(
        &self,
        request: &Attributes<'_>,
        object: Option<&JsonObject>,
    ) -> Result<(), RequestError> {
        let hooks = self.0.hooks(&request.front.catalog).await?;
        if hooks.is_empty() {
            return Ok(());
        }
        let subject = Subject::new(request);
        let mut check = Check {
            subject: &subject,
            object,
            scenes: Vec::new(),
            denied: None,
        };
        for hook in hooks.iter() {
            check.hook(hook).await?;
        }
        let Some((message, reason)) = check.denied else {
            return Ok(());
        };
        let mut status = request.forbidden(object, &message);
        let reason = Reason::from_name(&reason).unwrap_or(Reason::Invalid);
        status.reason = Some(reason);
        status.code = match reason {
            Reason::Forbidden => 403,
            Reason::Unauthorized => 401,
            Reason::RequestEntityTooLarge => 413,
            _ => 422,
        };
        let cause = StatusCause::new(CauseReason("".into()), message);
        Err(status.with_causes([cause]).into())
    }
}

/// The check of one request.
struct Check<'a> {
    subject: &'a Subject<'a>,
    object: Option<&'a JsonObject>,
    /// What expressions see, for each version.
    scenes: Vec<(String, Scene)>,
    /// The first message, and its reason.
    denied: Option<(String, String)>,
}

impl Check<'_> {
    fn deny(&mut self, policy: &Definition, binding: Option<&Binding>, denial: Denial) {
        let with = binding.map_or_else(String::new, |binding| {
            format!(" with binding '{}'", binding.name)
        });
        self.denied.get_or_insert_with(|| {
            let message = format!(
                "ValidatingAdmissionPolicy '{}'{with} denied request: {}",
                policy.name, denial.message
            );
            (message, denial.reason)
        });
    }

    /// Refuses the request because a policy or a binding cannot be used, if the policy wants that.
    fn fail(&mut self, policy: &Definition, binding: Option<&Binding>, error: &str) {
        if policy.ignores_failures {
            return;
        }
        let what = if binding.is_some() {
            "binding"
        } else {
            "policy"
        };
        let denial = Denial::of_error(format!("failed to configure {what}: {error}"));
        self.deny(policy, binding, denial);
    }

    async fn hook(&mut self, hook: &Hook) -> Result<(), RequestError> {
        let policy = &*hook.policy;
        let subject = self.subject;
        let matched = match policy.constraints.matched(subject, self.object).await {
            Ok(Some(matched)) => matched,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.fail(policy, None, &error.status().message);
                return Ok(());
            }
        };
        let resource = match params::resource(&subject.request.front.catalog, policy) {
            Ok(resource) => resource,
            Err(error) => {
                self.fail(policy, None, &error);
                return Ok(());
            }
        };
        for binding in &hook.bindings {
            if let Some(constraints) = &binding.constraints {
                match constraints.matched(subject, self.object).await {
                    Ok(Some(_)) => {}
                    Ok(None) => continue,
                    Err(error) => {
                        self.fail(policy, Some(binding), &error.status().message);
                        continue;
                    }
                }
            }
            let namespace = subject.request.namespace;
            let reference = binding.param_ref.as_ref();
            let params = match params::collect(resource.as_ref(), reference, namespace).await {
                Ok(params) => params,
                Err(error) => {
                    self.fail(policy, Some(binding), &error);
                    continue;
                }
            };
            if params.is_empty() {
                continue;
            }
            let namespace = subject.namespace_object().await?;
            let scene = match self.scene(&matched, namespace).await {
                Ok(scene) => scene,
                Err(error) => {
                    let error = format!("failed to convert object version: {error}");
                    self.fail(policy, Some(binding), &error);
                    continue;
                }
            };
            for param in &params {
                let findings = self.evaluate(policy, scene, param).await;
                self.take(policy, binding, findings);
            }
        }
        Ok(())
    }

    fn take(&mut self, policy: &Definition, binding: &Binding, findings: Findings) {
        let exchange = self.subject.request.exchange;
        for denial in findings.denials {
            if binding.audits {
                let failure = json!([{
                    "message": denial.message,
                    "policy": policy.name,
                    "binding": binding.name,
                    "expressionIndex": denial.index,
                    "validationActions": binding.actions,
                }]);
                exchange.annotate(FAILURE_ANNOTATION, failure.to_string());
            }
            if binding.warns {
                exchange.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                    policy.name, binding.name, denial.message
                ));
            }
            if binding.denies {
                self.deny(policy, Some(binding), denial);
            }
        }
        for message in findings.errors {
            self.deny(policy, Some(binding), Denial::of_error(message));
        }
        for (key, value) in findings.audits {
            exchange.annotate(format!("{}/{key}", policy.name), value);
        }
    }

    /// Returns the index of what expressions see of the request as one for a version.
    ///
    /// # Errors
    /// 500 if a webhook cannot convert an object.
    async fn scene(
        &mut self,
        matched: &Matched,
        namespace: Option<&JsonObject>,
    ) -> Result<usize, RequestError> {
        let request = self.subject.request;
        let version = matched.resource(request).names.api_version();
        if let Some(known) = self.scenes.iter().position(|(known, _)| *known == version) {
            return Ok(known);
        }
        let old = matched.convert(request, request.old).await?;
        let object = matched.convert(request, self.object).await?;
        let (object, old) = (object.as_deref(), old.as_deref());
        let scene = Scene::new(self.subject, matched, object, old, namespace);
        self.scenes.push((version, scene));
        Ok(self.scenes.len() - 1)
    }

    /// Evaluates a policy with a parameter.
    async fn evaluate(&self, policy: &Definition, scene: usize, param: &params::Param) -> Findings {
        let params = params::value(param);
        let run = Run {
            scene: &self.scenes[scene].1,
            params: params.as_ref(),
            evaluator: policy.evaluator(),
            ignores_failures: policy.ignores_failures,
        };
        run.findings().await
    }
}

/// One evaluation of a policy.
struct Run<'a> {
    scene: &'a Scene,
    params: Option<&'a revstore_cel::Value>,
    evaluator: &'a Evaluator,
    ignores_failures: bool,
}

impl Run<'_> {
    fn bindings(&self, has_authorizer: bool) -> Bindings<'_> {
        let variables: &Variables = &self.evaluator.variables;
        Bindings::new(self.scene, variables, self.params, has_authorizer)
    }

    /// Returns the findings if there is an error.
    fn failed(&self, message: String) -> Findings {
        let mut findings = Findings::default();
        self.add_failure(message, &mut findings);
        findings
    }

    fn add_failure(&self, message: String, findings: &mut Findings) {
        if !self.ignores_failures {
            findings.denials.push(Denial::of_error(message));
        }
    }

    async fn findings(&self) -> Findings {
        let evaluator = self.evaluator;
        let conditions = &evaluator.conditions;
        match conditions
            .hold(self.scene, self.params, &evaluator.variables)
            .await
        {
            Ok(true) => {}
            Ok(false) => return Findings::default(),
            Err(error) => return self.failed(error),
        }
        let mut budget = POLICY_COST_MAX;
        let mut results = Vec::new();
        let mut bindings = self.bindings(true);
        for validation in &evaluator.validations {
            match bindings.evaluate(&validation.expression, &mut budget).await {
                Ok(result) => results.push(result),
                Err(error) => return self.failed(error),
            }
        }
        drop(bindings);
        let (messages, message_error) = self.messages(&mut budget).await;
        let mut findings = Findings::default();
        for (index, (validation, result)) in evaluator.validations.iter().zip(results).enumerate() {
            match (result, &message_error) {
                (Err(error), _) => self.add_failure(error, &mut findings),
                (Ok(_), Some(error)) => {
                    self.add_failure(format!("failed messageExpression: {error}"), &mut findings);
                }
                (Ok(value), None) if value.as_bool() != Some(true) => {
                    let computed = messages.get(index).and_then(Option::as_deref);
                    findings.denials.push(Denial {
                        message: message(validation, computed),
                        reason: validation.reason.clone(),
                        index,
                    });
                }
                _ => {}
            }
        }
        if let Err(error) = self.audit(&mut findings).await {
            return self.failed(error);
        }
        findings
    }

    /// Returns the messages that expressions make, and the error of their costs.
    async fn messages(&self, budget: &mut u64) -> (Vec<Option<String>>, Option<String>) {
        let mut bindings = self.bindings(false);
        let mut messages = Vec::new();
        for validation in &self.evaluator.validations {
            let Some(expression) = &validation.computed else {
                messages.push(None);
                continue;
            };
            match bindings.evaluate(expression, budget).await {
                Ok(value) => messages.push(value.ok().and_then(|value| {
                    let text = value.as_str()?.trim();
                    let is_fine = text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
                    is_fine.then(|| text.to_owned())
                })),
                Err(error) => return (Vec::new(), Some(error)),
            }
        }
        (messages, None)
    }

    /// Evaluates the audit annotations.
    async fn audit(&self, findings: &mut Findings) -> Result<(), String> {
        let mut budget = POLICY_COST_MAX;
        let mut bindings = self.bindings(false);
        for audit in &self.evaluator.audits {
            match bindings.evaluate(&audit.expression, &mut budget).await? {
                Ok(value) => {
                    let text = value.as_str().unwrap_or_default().trim();
                    if !text.is_empty() {
                        let value = cut(text).to_owned();
                        findings.audits.push((audit.key.clone(), value));
                    }
                }
                Err(error) if !self.ignores_failures => findings.errors.push(error),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Returns the beginning of a text that an annotation can have.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(ANNOTATION_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the message of a validation that failed.
fn message(validation: &Validation, computed: Option<&str>) -> String {
    match computed {
        Some(text) if !text.is_empty() => text.to_owned(),
        _ if !validation.message.is_empty() => validation.message.clone(),
        _ => format!("failed expression: {}", validation.expression.source.trim()),
    }
}
