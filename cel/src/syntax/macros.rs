//! The macros: calls that are loops, or other expressions.

use super::ast::{Comprehension, Expr, Kind, Node};
use super::parser::{Parser, call};
use crate::values::Value;

/// The name of the variable in which a loop collects its result.
const RESULT: &str = "@result";
/// The name of the variable of a loop without rounds.
const UNUSED: &str = "#unused";
/// The name under which `sortBy` binds its list.
const SORT_INPUT: &str = "@__sortBy_input__";

/// The parts of a call that is no macro.
type Plain = (Option<Expr>, Vec<Expr>);
/// What a macro expands to, or the offset and text of an error.
type Expanded = Result<Expr, (u32, String)>;

impl Parser<'_> {
    /// Expands a macro, or returns the parts of the call.
    pub(super) fn expand(
        &mut self,
        id: Node,
        name: &str,
        target: Option<Expr>,
        args: Vec<Expr>,
    ) -> Result<Expr, Plain> {
        let offset = self.offsets[id as usize];
        let mut maker = Maker {
            parser: self,
            offset,
        };
        let expanded = match (name, target, args.len()) {
            ("has", None, 1) => maker.has(args),
            ("all" | "exists" | "exists_one" | "map" | "filter", Some(target), 2)
            | ("map", Some(target), 3) => maker.one_variable(name, target, args),
            ("all" | "exists" | "exists_one" | "existsOne", Some(target), 3)
            | ("transformList" | "transformMap" | "transformMapEntry", Some(target), 3 | 4) => {
                maker.two_variables(name, target, args)
            }
            ("optMap" | "optFlatMap", Some(target), 2) => maker.optional(name, target, args),
            ("sortBy", Some(target), 2) => maker.sort_by(target, args),
            (_, target, _) => return Err((target, args)),
        };
        Ok(expanded.unwrap_or_else(|(offset, message)| {
            self.report(offset, message);
            self.literal(offset, Value::Null)
        }))
    }
}

/// Makes expressions at the place of a macro.
struct Maker<'p, 'a> {
    parser: &'p mut Parser<'a>,
    offset: u32,
}

impl Maker<'_, '_> {
    fn make(&mut self, kind: Kind) -> Expr {
        let id = self.parser.node(self.offset);
        Expr::new(id, kind)
    }

    fn literal(&mut self, value: Value) -> Expr {
        self.make(Kind::Literal(value))
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.make(Kind::Ident(name.to_owned()))
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        let id = self.parser.node(self.offset);
        call(id, function, args)
    }

    fn member(&mut self, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        self.make(Kind::Call {
            target: Some(Box::new(target)),
            function: function.to_owned(),
            args,
        })
    }

    fn list(&mut self, items: Vec<Expr>) -> Expr {
        let optional = vec![false; items.len()];
        self.make(Kind::List { items, optional })
    }

    fn offset_of(&self, expr: &Expr) -> u32 {
        self.parser.offsets[expr.id as usize]
    }

    /// Returns a copy with numbers of its own.
    fn copy(&mut self, expr: &Expr) -> Expr {
        let mut copy = expr.clone();
        self.renumber(&mut copy);
        copy
    }

    fn renumber(&mut self, expr: &mut Expr) {
        let offset = self.offset_of(expr);
        expr.id = self.parser.node(offset);
        match &mut expr.kind {
            Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select { operand, .. } => self.renumber(operand),
            Kind::Call { target, args, .. } => {
                for part in target.as_deref_mut().into_iter().chain(args) {
                    self.renumber(part);
                }
            }
            Kind::List { items, .. } => items.iter_mut().for_each(|item| self.renumber(item)),
            Kind::Map(entries) => {
                for entry in entries {
                    self.renumber(&mut entry.key);
                    self.renumber(&mut entry.value);
                }
            }
            Kind::Struct { fields, .. } => {
                for field in fields {
                    let offset = self.parser.offsets[field.id as usize];
                    field.id = self.parser.node(offset);
                    self.renumber(&mut field.value);
                }
            }
            Kind::Comprehension(inner) => {
                for part in [
                    &mut inner.range,
                    &mut inner.init,
                    &mut inner.condition,
                    &mut inner.step,
                    &mut inner.result,
                ] {
                    self.renumber(part);
                }
            }
        }
    }

    fn has(&mut self, mut args: Vec<Expr>) -> Expanded {
        let arg = args.remove(0);
        match arg.kind {
            Kind::Select { operand, field, .. } => Ok(self.make(Kind::Select {
                operand,
                field,
                is_test: true,
            })),
            _ => Err((
                self.offset_of(&arg),
                "invalid argument to has() macro".to_owned(),
            )),
        }
    }

    /// Returns the name of a variable.
    fn variable(&self, arg: &Expr, message: &str) -> Result<String, (u32, String)> {
        match &arg.kind {
            Kind::Ident(name) if name == "__result__" => Err((
                self.offset_of(arg),
                "iteration variable overwrites accumulator variable".to_owned(),
            )),
            Kind::Ident(name) => Ok(name.clone()),
            _ => Err((self.offset_of(arg), message.to_owned())),
        }
    }

    fn one_variable(&mut self, name: &str, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let message = match name {
            "map" | "filter" => "argument is not an identifier",
            _ => "argument must be a simple name",
        };
        let variable = self.variable(&args[0], message)?;
        let last = args.pop();
        let body = last.unwrap_or_else(|| self.literal(Value::Null));
        let first = args.remove(0);
        let parts = match name {
            "map" => {
                let filter = args.pop();
                self.collect(body, filter)
            }
            "filter" => self.collect(first, Some(body)),
            _ => self.quantify(name, body),
        };
        Ok(self.comprehension(target, variable, None, parts))
    }

    fn two_variables(&mut self, name: &str, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let message = "argument must be a simple name";
        let first = self.variable(&args[0], message)?;
        let second = self.variable(&args[1], message)?;
        if first == second {
            let message = format!("duplicate variable name: {first}");
            return Err((self.offset_of(&args[1]), message));
        }
        let last = args.pop();
        let body = last.unwrap_or_else(|| self.literal(Value::Null));
        let filter = (args.len() == 3).then(|| args.pop()).flatten();
        let parts = match name {
            "transformList" => self.collect(body, filter),
            "transformMap" | "transformMapEntry" => {
                let result = self.ident(RESULT);
                let mut insert = vec![result];
                if name == "transformMap" {
                    insert.push(self.ident(&first));
                }
                insert.push(body);
                let step = self.call("cel.@mapInsert", insert);
                let init = self.make(Kind::Map(Vec::new()));
                self.filtered(init, step, filter)
            }
            _ => self.quantify(name, body),
        };
        Ok(self.comprehension(target, first, Some(second), parts))
    }

    /// Returns init, condition, step and result of a loop that fills a list.
    fn collect(&mut self, item: Expr, filter: Option<Expr>) -> [Expr; 4] {
        let init = self.list(Vec::new());
        let result = self.ident(RESULT);
        let item = self.list(vec![item]);
        let step = self.call("_+_", vec![result, item]);
        self.filtered(init, step, filter)
    }

    fn filtered(&mut self, init: Expr, mut step: Expr, filter: Option<Expr>) -> [Expr; 4] {
        if let Some(filter) = filter {
            let result = self.ident(RESULT);
            step = self.call("_?_:_", vec![filter, step, result]);
        }
        let condition = self.literal(Value::Bool(true));
        [init, condition, step, self.ident(RESULT)]
    }

    fn quantify(&mut self, name: &str, body: Expr) -> [Expr; 4] {
        let result = self.ident(RESULT);
        match name {
            "all" => {
                let init = self.literal(Value::Bool(true));
                let condition = self.call("@not_strictly_false", vec![result]);
                let result = self.ident(RESULT);
                let step = self.call("_&&_", vec![result, body]);
                [init, condition, step, self.ident(RESULT)]
            }
            "exists" => {
                let init = self.literal(Value::Bool(false));
                let not = self.call("!_", vec![result]);
                let condition = self.call("@not_strictly_false", vec![not]);
                let result = self.ident(RESULT);
                let step = self.call("_||_", vec![result, body]);
                [init, condition, step, self.ident(RESULT)]
            }
            _ => {
                let init = self.literal(Value::Int(0));
                let condition = self.literal(Value::Bool(true));
                let one = self.literal(Value::Int(1));
                let sum = self.call("_+_", vec![result, one]);
                let same = self.ident(RESULT);
                let step = self.call("_?_:_", vec![body, sum, same]);
                let result = self.ident(RESULT);
                let one = self.literal(Value::Int(1));
                [init, condition, step, self.call("_==_", vec![result, one])]
            }
        }
    }

    fn comprehension(
        &mut self,
        range: Expr,
        variable: String,
        second: Option<String>,
        [init, condition, step, result]: [Expr; 4],
    ) -> Expr {
        self.make(Kind::Comprehension(Box::new(Comprehension {
            range,
            variable,
            second,
            accumulator: RESULT.to_owned(),
            init,
            condition,
            step,
            result,
        })))
    }

    /// Binds a variable to a value in an expression.
    fn bind(&mut self, name: &str, value: Expr, result: Expr) -> Expr {
        let range = self.list(Vec::new());
        let condition = self.literal(Value::Bool(false));
        let step = self.ident(name);
        self.make(Kind::Comprehension(Box::new(Comprehension {
            range,
            variable: UNUSED.to_owned(),
            second: None,
            accumulator: name.to_owned(),
            init: value,
            condition,
            step,
            result,
        })))
    }

    fn optional(&mut self, macro_name: &str, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let last = args.pop();
        let body = last.unwrap_or_else(|| self.literal(Value::Null));
        let Kind::Ident(name) = &args[0].kind else {
            let message = format!("{macro_name}() variable name must be a simple identifier");
            return Err((self.offset_of(&args[0]), message));
        };
        let copy = self.copy(&target);
        let condition = self.member("hasValue", target, Vec::new());
        let value = self.member("value", copy, Vec::new());
        let mut then = self.bind(name, value, body);
        if macro_name == "optMap" {
            then = self.call("optional.of", vec![then]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call("_?_:_", vec![condition, then, none]))
    }

    fn sort_by(&mut self, target: Expr, args: Vec<Expr>) -> Expanded {
        if matches!(
            target.kind,
            Kind::Literal(_) | Kind::Map(_) | Kind::Struct { .. }
        ) {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((self.offset_of(&target), message.to_owned()));
        }
        let input = self.ident(SORT_INPUT);
        let keys = self.one_variable("map", input, args)?;
        let input = self.ident(SORT_INPUT);
        let sorted = self.member("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.bind(SORT_INPUT, target, sorted))
    }
}
