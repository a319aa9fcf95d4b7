//! The judgement of `certs check`: what an administrator must do about the certificates of a state directory or a
//! cluster. Each line has its remedy, which `health` prints.

use std::fmt;

use inspect::{Cause, cause_of};
use model::pointer_config::{LeftAlone, PointerConfig};
use pki::{Certificate, Lockout, NextAction, Policy, Step, Warning, next, reported_lockouts};
use serde::{Serialize, Serializer};
use time::OffsetDateTime;

use crate::commands::print_line;
use crate::commands::remark::Remark;
use crate::commands::stores::certificate_texts::{date, located};
use crate::commands::stores::exposure::ConfigFindings;
use crate::commands::stores::state_store::ObservedState;

/// Next step if a pointer config is not updated.
const POINTER_FIX: &str =
    "write this pointer config again from the pool's present one, and give it to its machines";
/// Next step if a step of a rotation is due.
const STEP_FIX: &str = "start the server of this directory or the controller of this cluster, which does it by \
    itself, or run `machine-config-server certs rotate`; if it runs, read the reason in its log";

/// Result of `certs check`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) struct CheckReport {
    /// Time of the next due step, in RFC 3339.
    in_order_until: Option<String>,
    /// Verdict, if something is wrong.
    pub(in crate::commands) verdict: Option<Verdict>,
    pub(in crate::commands) faults: Vec<Remark>,
    /// Faults on some platforms, and fields without effect.
    pub(in crate::commands) warnings: Vec<Remark>,
    /// Pointer configs that are not edited.
    pub(in crate::commands) left_alone: Vec<Remark>,
    /// Secrets that unauthenticated clients can read in configs.
    pub(in crate::commands) exposed: Vec<Remark>,
}

/// Verdict of `certs check`. Its JSON is the text.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::commands) enum Verdict {
    /// A sum of the faults.
    Sum(String),
    /// A fault that is not among the others.
    Fault(Remark),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sum(text) => f.write_str(text),
            Self::Fault(remark) => remark.fmt(f),
        }
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl CheckReport {
    /// Judges faults and due steps.
    pub(in crate::commands) fn of(
        seen: &ObservedState,
        now: OffsetDateTime,
    ) -> anyhow::Result<Self> {
        let policy = &Policy::default();
        let next = next(&seen.observed, policy, now, &mut |_| policy.algorithm.generate())?;
        // Of one that cannot be served, its own fault is reported.
        let chain = &seen.chain().unwrap_or_default();
        let mut reported = of_files(seen);
        let mut in_order_until = None;
        let verdict = match next {
            NextAction::Step { step, .. } => {
                // Only the due step is reported, because other faults may result from it.
                let lockouts = reported_lockouts(&seen.observed, now).into_iter();
                let lockouts = lockouts.map(|it| of_warning(&Warning::LockedOut(it), seen, chain));
                reported.extend(lockouts);
                reported.extend(faults(seen, chain, now)?);
                Some(of_step(&step, seen))
            }
            NextAction::Settled { attention, .. } if !attention.iter().all(Warning::is_warning) => {
                let faults = attention.iter().filter(|it| !it.is_warning());
                reported.extend(faults.map(|it| of_warning(it, seen, chain)));
                Some(Verdict::Sum(Warning::verdict(&attention)))
            }
            NextAction::Settled { .. } if seen.observed.serving.is_none() => {
                let fix = "start the server or the controller, which makes it";
                let missing = "no serving certificate found";
                Some(Verdict::Fault(Remark::new(seen.files[1].clone(), missing, fix)))
            }
            NextAction::Settled { .. } if !seen.unreadable.is_empty() => {
                Some(Verdict::Sum("the server cannot read all its files".to_owned()))
            }
            NextAction::Settled { .. } if !reported.is_empty() => {
                Some(Verdict::Sum("other users can read keys or tokens".to_owned()))
            }
            NextAction::Settled { until, .. } => {
                in_order_until = Some(date(until)?);
                None
            }
        };
        let pointers = pki::pointer_warnings(&seen.observed);
        let left_alone = seen.pointers.iter().filter_map(|(name, text)| {
            let config = PointerConfig::read(text);
            let reason = seen.foreign_reason(&config).filter(|it| *it == LeftAlone::NameOnly)?;
            Some(Remark::new(name, format!("{name}: not updated: {reason}"), POINTER_FIX))
        });
        Ok(Self {
            exposed: Vec::new(),
            warnings: pointers.iter().map(|it| of_warning(it, seen, chain)).collect(),
            in_order_until,
            left_alone: left_alone.collect(),
            faults: reported,
            verdict,
        })
    }

    /// Adds remarks about configs, or that they are not known.
    pub(in crate::commands) fn add(&mut self, found: anyhow::Result<ConfigFindings>) {
        match found {
            Ok(ConfigFindings { exposed, ignored }) => {
                let fix = "enforce tokens for the pool with --access enforce or its annotation, or remove the \
                    secret from its MachineConfigs";
                self.exposed = exposed.iter().map(|line| Remark::of_line(line, fix)).collect();
                let fix = "correct the name of the field, or remove it: it has no effect";
                self.warnings.extend(ignored.iter().map(|line| Remark::of_line(line, fix)));
            }
            Err(error) => {
                let unknown =
                    format!("cannot determine what unauthenticated clients can read: {error:#}");
                let fix = "give this account the right that the reason names, or use an administrator's kubeconfig";
                self.exposed = vec![Remark::new("configs", unknown, fix)];
            }
        }
    }

    pub(super) fn print_lines(&self) {
        let Self { in_order_until, faults, warnings, left_alone, exposed, .. } = self;
        for line in exposed {
            print_line(&line.text);
        }
        for warning in warnings {
            print_line(&format!("warning: {warning}"));
        }
        if let Some(until) = in_order_until {
            print_line(&format!("OK, next check {until}"));
        }
        for line in left_alone.iter().chain(faults) {
            print_line(&line.text);
        }
    }
}

/// Files that too many users can read, or the server cannot.
fn of_files(seen: &ObservedState) -> Vec<Remark> {
    let open = "run `chmod go= FILE` as its owner; if others had access, replace what it contains";
    let open = seen.open_files.iter().map(|line| Remark::of_line(line, open));
    let unread =
        "make it readable for the user that the server runs as, or restore it from a backup";
    let unread = seen.unreadable.iter().map(|line| Remark::of_line(line, unread));
    open.chain(unread).collect()
}

fn of_step(step: &Step, seen: &ObservedState) -> Verdict {
    let [ca, serving] = &seen.files;
    let (thing, text) = match step {
        Step::Ca(reason) | Step::Store(reason) => (ca, format!("the signing CA: {reason}")),
        Step::Bundle(_) => (ca, "the trust bundle does not have the expected CAs".to_owned()),
        Step::Pointers => {
            (&seen.place, "pointer configs trust other CAs than the trust bundle".to_owned())
        }
        Step::Serving(reason, _) => (serving, format!("the serving certificate: {reason}")),
    };
    Verdict::Fault(Remark::new(thing, text, STEP_FIX))
}

/// A warning about what serves `chain`.
fn of_warning(warning: &Warning, seen: &ObservedState, chain: &[Certificate]) -> Remark {
    let [ca, serving] = &seen.files;
    let thing = match warning {
        Warning::LockedOut(Lockout { holder, .. }) => holder,
        warning => warning.object(ca, serving),
    };
    let fix = match warning {
        // One that trusts the right CA needs no other pointer config.
        Warning::LockedOut(lockout) => match cause_of(&lockout.reason, chain) {
            Cause::Refused(_) => warning.fix(),
            cause => cause.remedy(),
        },
        warning => warning.fix(),
    };
    Remark::new(thing, located(warning, &seen.files), fix)
}

/// Unusable pairs that no step repairs.
fn faults(
    seen: &ObservedState,
    chain: &[Certificate],
    now: OffsetDateTime,
) -> anyhow::Result<Vec<Remark>> {
    let policy = &Policy::default();
    let generate = &mut |_| policy.algorithm.generate();
    let (_, attention) = pki::dry_run(&seen.observed, policy, now, generate)?;
    let is_fault = |it: &&Warning| matches!(it, Warning::Ca(_) | Warning::Serving(_));
    Ok(attention.iter().filter(is_fault).map(|it| of_warning(it, seen, chain)).collect())
}
