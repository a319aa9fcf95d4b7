//! The metrics that the source registers, by their names on the page, and those that an expression of
//! Prometheus asks for.
//!
//! By the source and not by a page, because a metric that is told apart by labels has no line there
//! before it has happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Expr, ExprLit, ExprMethodCall, Field, Lit, Member, Type};

/// What all names begin with.
const PREFIX: &str = "mcs_";

/// A metric as the source registers it.
#[derive(Debug, Clone)]
pub(super) struct Metric {
    /// Without what its kind appends.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// One of each of its labels' values.
    pub(super) is_family: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Metric {
    /// The names of its series.
    pub(super) fn series(&self) -> Vec<String> {
        let suffixes: &[&str] = match self.kind {
            Kind::Counter => &["_total"],
            Kind::Gauge => &[""],
            Kind::Histogram => &["_bucket", "_count", "_sum"],
        };
        suffixes.iter().map(|suffix| format!("{}{suffix}", self.name)).collect()
    }
}

/// What the file registers, `registry.register("name", "help", self.field.clone())`.
pub(super) fn registered(file: &Path) -> Vec<Metric> {
    let text = fs::read_to_string(file).expect("a source file");
    let source = syn::parse_file(&text).expect("Rust");
    let mut found = Found::default();
    found.visit_file(&source);
    assert!(!found.calls.is_empty(), "{} registers nothing", file.display());
    let metric = |(name, field): &(String, String)| {
        let words = &found.fields[field];
        let has = |word: &str| words.contains(word);
        let kind = match () {
            () if has("Counter") => Kind::Counter,
            () if has("Histogram") => Kind::Histogram,
            () if has("Gauge") => Kind::Gauge,
            () => panic!("{name} is of no known kind: {words:?}"),
        };
        Metric { name: format!("{PREFIX}{name}"), kind, is_family: has("Family") }
    };
    found.calls.iter().map(metric).collect()
}

#[derive(Default)]
struct Found {
    /// The words of each field's type.
    fields: BTreeMap<String, BTreeSet<String>>,
    /// Names with their fields.
    calls: Vec<(String, String)>,
}

impl<'ast> Visit<'ast> for Found {
    fn visit_field(&mut self, field: &'ast Field) {
        if let Some(name) = &field.ident {
            let mut words = Words::default();
            words.visit_type(&field.ty);
            self.fields.insert(name.to_string(), words.0);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        let mut arguments = call.args.iter();
        if call.method != "register" || arguments.len() != 3 {
            return;
        }
        let (Some(Expr::Lit(ExprLit { lit: Lit::Str(name), .. })), Some(Expr::MethodCall(clone))) =
            (arguments.next(), arguments.nth(1))
        else {
            panic!("a metric is registered otherwise than by name, help and self.field.clone()");
        };
        let Expr::Field(field) = &*clone.receiver else { panic!("no field: {}", name.value()) };
        let Member::Named(field) = &field.member else { panic!("no name: {}", name.value()) };
        self.calls.push((name.value(), field.to_string()));
    }
}

/// All names in a type.
#[derive(Default)]
struct Words(BTreeSet<String>);

impl<'ast> Visit<'ast> for Words {
    fn visit_type(&mut self, node: &'ast Type) {
        visit::visit_type(self, node);
    }

    fn visit_ident(&mut self, ident: &'ast proc_macro2::Ident) {
        self.0.insert(ident.to_string());
    }
}

/// The series of this program in an expression.
pub(super) fn asked_for(expression: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = expression.split(|c: char| !is_name(c));
    names.filter(|name| name.starts_with(PREFIX)).map(str::to_owned).collect()
}
