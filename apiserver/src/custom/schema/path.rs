//! The place of a node in a schema or an object, which costs nothing until it is written.

use std::fmt;

use revstore_watch_cache::status::FieldPath;

/// The path of a field. Each level borrows from the one above it, so that only errors build texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    /// The path of the root, which may be empty.
    Root(&'a str),
    Child(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// Returns the path of a root; empty for an object itself.
    pub(crate) fn root(path: &'a str) -> Self {
        Self {
            parent: None,
            step: Step::Root(path),
        }
    }

    /// Returns the path of a field.
    pub(crate) fn child(&'a self, name: &'a str) -> Self {
        self.step(Step::Child(name))
    }

    /// Returns the path of an item.
    pub(crate) fn index(&'a self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    /// Returns the path of an entry of a map.
    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        self.step(Step::Key(key))
    }

    fn step(&'a self, step: Step<'a>) -> Self {
        Self {
            parent: Some(self),
            step,
        }
    }

    /// Returns the path of the root.
    pub(crate) fn top(&self) -> Path<'a> {
        let mut top = *self;
        while let Some(parent) = top.parent {
            top = *parent;
        }
        top
    }

    /// Returns whether this is the path of the root.
    pub(crate) fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// Returns the path below the root, as the texts of values' errors have it.
    pub(crate) fn below_root(&self) -> String {
        let text = self.to_string();
        let below = match self.top().step {
            Step::Root(root) => text.strip_prefix(root).unwrap_or(&text),
            _ => &text,
        };
        below.strip_prefix('.').unwrap_or(below).to_owned()
    }

    /// Returns the field in a cause. An object itself is called `<nil>` there.
    pub(crate) fn field(&self) -> FieldPath {
        let text = self.to_string();
        FieldPath::new(if text.is_empty() {
            "<nil>".to_owned()
        } else {
            text
        })
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut steps = vec![self.step];
        let mut at = self;
        while let Some(parent) = at.parent {
            at = parent;
            steps.push(at.step);
        }
        let mut is_empty = true;
        let mut is_below_root = false;
        for step in steps.iter().rev() {
            // As in Kubernetes, where the path below a root is one step.
            if let Step::Index(_) = step
                && is_below_root
            {
                f.write_str(".")?;
            }
            is_below_root = matches!(step, Step::Root(name) if !name.is_empty());
            match step {
                Step::Root("") => continue,
                Step::Root(name) => f.write_str(name)?,
                Step::Child(name) if is_empty => f.write_str(name)?,
                Step::Child(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => write!(f, "[{key}]")?,
            }
            is_empty = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Path;

    #[test]
    fn paths_are_written_as_in_kubernetes() {
        let root = Path::root("");
        let spec = root.child("spec");
        let ports = spec.child("ports");
        let port = ports.index(1);
        assert_eq!(port.child("name").to_string(), "spec.ports[1].name");
        assert_eq!(root.field().to_string(), "<nil>");
        assert_eq!(port.below_root(), "spec.ports[1]");
        let status = Path::root("status");
        assert_eq!(status.child("phase").to_string(), "status.phase");
        assert_eq!(status.child("phase").below_root(), "phase");
        assert_eq!(status.key("a").to_string(), "status[a]");
        assert_eq!(status.below_root(), "");
    }
}
