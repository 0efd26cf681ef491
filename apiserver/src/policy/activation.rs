//! The evaluation of expressions for one request.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use revstore_cel::{
    AccessAttributes, AccessDecision, Activation, Authorizer as Asked, CALL_COST_MAX, Evaluation,
    EvaluationError, Program, Value,
};
use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value as Json, json};

use super::constraints::{Matched, Subject, has_own_kind};
use super::definition::{Expression, Variables};
use crate::auth::{Attributes as Access, Authorizer, User};
use crate::evaluation::{WORKER_COST_MAX, beside_tasks};

/// The maximum cost of all expressions of a policy, for one binding, one parameter and one request.
pub(crate) const POLICY_COST_MAX: u64 = 10_000_000;
/// The maximum size of the stack that variables use which refer to each other, in bytes. An expression that needs more
/// fails.
const STACK_BYTES_MAX: usize = 256 * 1024;

/// The error of expressions that together cost too much.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// What expressions see of a request, as the object of one version.
#[derive(Debug)]
pub(crate) struct Scene {
    object: Value,
    old: Value,
    request: Value,
    namespace: Value,
    authorizer: Value,
    resource_authorizer: Value,
}

impl Scene {
    /// Returns what expressions see. The objects are of the version as which the request matches, and `namespace` is that
    /// of the object.
    pub(crate) fn new(
        subject: &Subject<'_>,
        matched: &Matched,
        object: Option<&JsonObject>,
        old: Option<&JsonObject>,
        namespace: Option<&JsonObject>,
    ) -> Self {
        let objects = [object, old].map(|object| object.map_or(Value::Null, map));
        let described = request_json(subject, matched);
        Self::of(subject, objects, &described, namespace)
    }

    /// Returns what the match conditions of a webhook see. The objects are of the version that the webhook is asked
    /// about.
    pub(crate) fn of_webhook(
        subject: &Subject<'_>,
        matched: &Matched,
        object: Option<&JsonObject>,
        old: Option<&JsonObject>,
    ) -> Self {
        let objects = [object, old].map(|object| object.map_or(Value::Null, map));
        let mut described = request_json(subject, matched);
        // The resource is that of the request, whatever the version of the objects is.
        described["resource"] = described["requestResource"].clone();
        Self::of(subject, objects, &described, None)
    }

    fn of(
        subject: &Subject<'_>,
        [object, old]: [Value; 2],
        described: &Json,
        namespace: Option<&JsonObject>,
    ) -> Self {
        let request = subject.request;
        let asked: Arc<dyn Asked> = Arc::new(AccessOf {
            authorizer: request.front.authorizer.clone(),
            user: request.user().clone(),
        });
        let user = &request.user().name;
        let mut access = AccessAttributes::default();
        access.user.clone_from(user);
        access.group.clone_from(&request.resource.names.group);
        access.resource.clone_from(&request.resource.names.plural);
        request.subresource.clone_into(&mut access.subresource);
        access.namespace = subject.namespace_name().into_owned();
        access.name = request.name.to_string();
        Self {
            object,
            old,
            request: Value::from_json(described),
            namespace: namespace.map_or(Value::Null, map),
            authorizer: Value::authorizer(asked.clone(), user),
            resource_authorizer: Value::resource_check(asked, access),
        }
    }

    /// Replaces the object, which is of the version of the scene.
    pub(crate) fn set_object(&mut self, object: &JsonObject) {
        self.object = map(object);
    }
}

fn map(object: &JsonObject) -> Value {
    Value::map(
        object
            .iter()
            .map(|(name, value)| (name.as_str(), Value::from_json(value))),
    )
}

/// Returns the variable `request`.
fn request_json(subject: &Subject<'_>, matched: &Matched) -> Json {
    let request = subject.request;
    let user = request.user();
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let resource = |names: &crate::catalog::Names| json!({"group": names.group, "version": names.version, "resource": names.plural});
    let own = &request.kind;
    let as_matched = &matched.resource(request).names;
    let matched_kind = if has_own_kind(request) {
        kind(&as_matched.group, &as_matched.version, &as_matched.kind)
    } else {
        kind(own.group, own.version, own.kind)
    };
    let mut value = json!({
        "uid": "",
        "kind": matched_kind,
        "resource": resource(as_matched),
        "requestKind": kind(own.group, own.version, own.kind),
        "requestResource": resource(&request.resource.names),
        "operation": request.operation.name(),
        "userInfo": {},
        "dryRun": request.dry_run,
        "options": request.options(),
    });
    let namespace = subject.namespace_name();
    for (name, text) in [
        ("subResource", request.subresource),
        ("requestSubResource", request.subresource),
        ("name", &*request.name),
        ("namespace", &*namespace),
    ] {
        if !text.is_empty() {
            value[name] = text.into();
        }
    }
    let info = &mut value["userInfo"];
    for (name, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            info[name] = text.as_str().into();
        }
    }
    if !user.groups.is_empty() {
        info["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter().cloned();
        info["extra"] = extra
            .map(|(name, values)| (name, json!(values)))
            .collect::<JsonObject>()
            .into();
    }
    value
}

/// What the user of a request may do.
#[derive(Debug)]
struct AccessOf {
    authorizer: Authorizer,
    user: User,
}

impl Asked for AccessOf {
    fn check(&self, access: &AccessAttributes) -> AccessDecision {
        let account;
        let user = if access.is_service_account {
            let account_of = User::split_service_account(&access.user);
            let (namespace, name) = account_of.unwrap_or_default();
            account = User::service_account(namespace, name).authenticated();
            &account
        } else {
            &self.user
        };
        let asked = match &access.path {
            Some(path) => Access::Path {
                verb: &access.verb,
                path,
            },
            None => Access::Resource {
                verb: &access.verb,
                group: &access.group,
                namespace: &access.namespace,
                resource: &access.resource,
                subresource: &access.subresource,
                name: &access.name,
            },
        };
        let found = self.authorizer.decide(user, asked);
        AccessDecision {
            allowed: found.allowed,
            reason: found.reason,
            error: None,
        }
    }
}

/// The values of variables for some expressions, which are evaluated one after another. Variables of the policy are
/// evaluated once, when they are used.
#[derive(Debug)]
pub(crate) struct Bindings<'a> {
    scene: &'a Scene,
    variables: &'a Variables,
    params: Option<&'a Value>,
    has_authorizer: bool,
    has_namespace: bool,
    /// In the order in which they were computed.
    computed: RefCell<Vec<(String, Result<Value, EvaluationError>)>>,
    /// The cost of variables that is not yet accounted for, and its maximum.
    composed: Cell<u64>,
    composed_max: Cell<u64>,
    /// The maximum cost of one evaluation.
    call_max: Cell<u64>,
    /// Where the stack began.
    stack: Cell<usize>,
    /// The cost since other tasks had a turn.
    turn: u64,
}

impl<'a> Bindings<'a> {
    pub(crate) fn new(
        scene: &'a Scene,
        variables: &'a Variables,
        params: Option<&'a Value>,
        has_authorizer: bool,
    ) -> Self {
        Self {
            scene,
            variables,
            params,
            has_authorizer,
            has_namespace: true,
            computed: RefCell::default(),
            composed: Cell::new(0),
            composed_max: Cell::new(0),
            call_max: Cell::new(CALL_COST_MAX),
            stack: Cell::new(0),
            turn: 0,
        }
    }

    /// Leaves the namespace out.
    pub(crate) fn without_namespace(mut self) -> Self {
        self.has_namespace = false;
        self
    }

    /// Evaluates an expression. The inner error is that of the expression.
    ///
    /// # Errors
    /// The budget is exhausted.
    pub(crate) async fn evaluate(
        &mut self,
        expression: &Expression,
        budget: &mut u64,
    ) -> Result<Result<Value, String>, String> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(refusal) => {
                let reason = refusal.clone().into_text();
                return Ok(Err(format!("compilation error: {reason}")));
            }
        };
        let evaluation = self.begin(program, *budget);
        let cost = self.composed.get().saturating_add(evaluation.cost);
        self.turn = self.turn.saturating_add(cost);
        if self.turn > WORKER_COST_MAX {
            self.turn = 0;
            tokio::task::yield_now().await;
        }
        *budget = budget
            .checked_sub(cost)
            .ok_or_else(|| OUT_OF_BUDGET.to_owned())?;
        Ok(evaluation.result.map_err(|error| {
            format!(
                "expression '{}' resulted in error: {error}",
                expression.source
            )
        }))
    }

    /// Evaluates a program, beside other tasks if it or the variables that it uses take long.
    fn begin(&self, program: &Program, budget: u64) -> Evaluation {
        let known = self.computed.borrow().len();
        let short = self.begin_within(program, budget.min(WORKER_COST_MAX), WORKER_COST_MAX);
        let is_long = |cost: u64| cost > WORKER_COST_MAX;
        if !is_long(short.cost) && !is_long(self.composed.get()) {
            return short;
        }
        beside_tasks(|| {
            // Variables may have ended early.
            self.computed.borrow_mut().truncate(known);
            self.begin_within(program, budget, CALL_COST_MAX)
        })
    }

    /// Evaluates a program with limits, and remembers where the stack begins, which a task has not.
    fn begin_within(&self, program: &Program, composed_max: u64, call_max: u64) -> Evaluation {
        self.composed.set(0);
        self.composed_max.set(composed_max);
        self.call_max.set(call_max);
        self.stack.set(stack_address());
        program.evaluate_in(self, call_max)
    }

    /// Evaluates a variable of the policy.
    fn compute(&self, name: &str) -> Option<Result<Value, EvaluationError>> {
        let (_, expression) = self.variables.0.iter().rfind(|(own, _)| own == name)?;
        let program = match &expression.program {
            Ok(program) => program,
            Err(refusal) => {
                let reason = refusal.clone().into_text();
                return Some(Err(EvaluationError::Failed(format!(
                    "composited variable \"{name}\" fails to compile: {reason}"
                ))));
            }
        };
        let failed = |reason: &str| {
            EvaluationError::Failed(format!(
                "composited variable \"{name}\" fails to evaluate: {reason}"
            ))
        };
        if self.stack.get().abs_diff(stack_address()) > STACK_BYTES_MAX {
            return Some(Err(failed("too many variables refer to each other")));
        }
        let evaluation = program.evaluate_in(self, self.call_max.get());
        let composed = self.composed.get().saturating_add(evaluation.cost);
        self.composed.set(composed);
        if composed > self.composed_max.get() {
            return Some(Err(EvaluationError::CostLimit));
        }
        Some(
            evaluation
                .result
                .map_err(|error| failed(&error.to_string())),
        )
    }
}

/// Returns about where the stack ends.
fn stack_address() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

impl Activation for Bindings<'_> {
    fn variable(&self, name: &str) -> Option<Value> {
        let scene = self.scene;
        Some(match name {
            "object" => scene.object.clone(),
            "oldObject" => scene.old.clone(),
            "request" => scene.request.clone(),
            "namespaceObject" if self.has_namespace => scene.namespace.clone(),
            "namespaceObject" => Value::Null,
            "params" => self.params.cloned().unwrap_or(Value::Null),
            "variables" => Value::map([("", Value::Null); 0]),
            "authorizer" if self.has_authorizer => scene.authorizer.clone(),
            "authorizer.requestResource" if self.has_authorizer => {
                scene.resource_authorizer.clone()
            }
            _ => return None,
        })
    }

    fn field(&self, variable: &str, field: &str) -> Option<Result<Value, EvaluationError>> {
        if variable != "variables" {
            return None;
        }
        let computed = self.computed.borrow();
        if let Some((_, known)) = computed.iter().find(|(name, _)| name == field) {
            return Some(known.clone());
        }
        drop(computed);
        let value = self.compute(field)?;
        let mut computed = self.computed.borrow_mut();
        computed.push((field.to_owned(), value.clone()));
        Some(value)
    }
}
