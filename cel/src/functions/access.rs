//! Questions about access.

use std::sync::Arc;

use super::{Function, Outcome};
use crate::fault::{fail, no_such_overload};
use crate::format;
use crate::values::{AccessAttributes, Authorization, Check, Value};

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "path" => |_, args| {
            begin(args, |access, text| {
                access.path = Some(text.to_owned());
                (!text.trim().is_empty())
                    .then_some(())
                    .ok_or("path must not be empty")
            })
        },
        "group" => |_, args| {
            begin(args, |access, text| {
                text.clone_into(&mut access.group);
                Ok(())
            })
        },
        "serviceAccount" => |_, args| service_account(args),
        "resource" => |_, args| {
            refine(args, |access, text| {
                text.clone_into(&mut access.resource);
                (!text.trim().is_empty())
                    .then_some(())
                    .ok_or("resource must not be empty")
            })
        },
        "subresource" => |_, args| {
            refine(args, |access, text| {
                text.clone_into(&mut access.subresource);
                Ok(())
            })
        },
        "namespace" => |_, args| {
            refine(args, |access, text| {
                text.clone_into(&mut access.namespace);
                Ok(())
            })
        },
        "name" => |_, args| {
            refine(args, |access, text| {
                text.clone_into(&mut access.name);
                Ok(())
            })
        },
        "fieldSelector" => |_, args| {
            refine(args, |access, text| {
                access.field_selector = Some(text.to_owned());
                Ok(())
            })
        },
        "labelSelector" => |_, args| {
            refine(args, |access, text| {
                access.label_selector = Some(text.to_owned());
                Ok(())
            })
        },
        "check" => |_, args| check(args),
        "allowed" => |_, args| decision(args, |it| Value::Bool(it.allowed)),
        "reason" => |_, args| decision(args, |it| Value::from(it.reason.as_str())),
        "errored" => |_, args| decision(args, |it| Value::Bool(it.error.is_some())),
        "error" => |_, args| {
            decision(args, |it| {
                Value::from(it.error.as_deref().unwrap_or_default())
            })
        },
        _ => return None,
    })
}

fn made(inner: Authorization) -> Value {
    Value::Authorization(Arc::new(inner))
}

/// How a function changes the access to ask about.
type Change = fn(&mut AccessAttributes, &str) -> Result<(), &'static str>;

/// Begins a question.
fn begin(args: &[Value], change: Change) -> Outcome {
    let [Value::Authorization(inner), Value::String(text)] = args else {
        return Err(no_such_overload());
    };
    let Authorization::Authorizer {
        authorizer,
        user,
        is_service_account,
    } = &**inner
    else {
        return Err(no_such_overload());
    };
    let mut access = AccessAttributes {
        user: user.to_string(),
        is_service_account: *is_service_account,
        ..AccessAttributes::default()
    };
    change(&mut access, text)?;
    Ok(made(Authorization::Check(Box::new(Check {
        authorizer: authorizer.clone(),
        access,
    }))))
}

/// Adds to a question.
fn refine(args: &[Value], change: Change) -> Outcome {
    let [Value::Authorization(inner), Value::String(text)] = args else {
        return Err(no_such_overload());
    };
    let Authorization::Check(check) = &**inner else {
        return Err(no_such_overload());
    };
    let mut check = check.clone();
    change(&mut check.access, text)?;
    Ok(made(Authorization::Check(check)))
}

fn service_account(args: &[Value]) -> Outcome {
    let [
        Value::Authorization(inner),
        Value::String(namespace),
        Value::String(name),
    ] = args
    else {
        return Err(no_such_overload());
    };
    let Authorization::Authorizer { authorizer, .. } = &**inner else {
        return Err(no_such_overload());
    };
    let is_valid = |key: &str, text: &str| {
        format::find(key).is_some_and(|format| format.validate(text).is_empty())
    };
    if !is_valid("dns1123Subdomain", name) {
        return fail("Invalid service account name");
    }
    if !is_valid("dns1123Label", namespace) {
        return fail("Invalid service account namespace");
    }
    Ok(made(Authorization::Authorizer {
        authorizer: authorizer.clone(),
        user: format!("system:serviceaccount:{namespace}:{name}").into(),
        is_service_account: true,
    }))
}

fn check(args: &[Value]) -> Outcome {
    let [Value::Authorization(inner), Value::String(verb)] = args else {
        return Err(no_such_overload());
    };
    let Authorization::Check(check) = &**inner else {
        return Err(no_such_overload());
    };
    let access = AccessAttributes {
        verb: verb.to_string(),
        ..check.access.clone()
    };
    Ok(made(Authorization::Decision(
        check.authorizer.check(&access),
    )))
}

fn decision(args: &[Value], get: fn(&crate::values::AccessDecision) -> Value) -> Outcome {
    match args {
        [Value::Authorization(inner)] => match &**inner {
            Authorization::Decision(decision) => Ok(get(decision)),
            _ => Err(no_such_overload()),
        },
        _ => Err(no_such_overload()),
    }
}
