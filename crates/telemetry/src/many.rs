//! Log lines about many objects at once.

use model::access::rotation::Reason;

/// Number of objects that a line of the log names.
const LISTED: usize = 5;

/// The first names of a list, and how many more there are.
pub fn listed<S: AsRef<str>>(names: &[S]) -> String {
    model::escape::listed(names, LISTED)
}

/// Logs steps of the tokens' rotation, those of single pools in one line together.
pub fn log_token_steps(done: &[Reason]) {
    let (mut first, mut due) = (Vec::new(), Vec::new());
    for reason in done {
        match reason {
            Reason::First(pool) => first.push(pool),
            Reason::Due(pool) => due.push(pool),
            reason => tracing::info!(%reason, "updated the tokens"),
        }
    }
    for (reason, pools) in [("the pools had no token", first), ("their tokens were old", due)] {
        if !pools.is_empty() {
            tracing::info!(pools = pools.len(), names = listed(&pools), reason, "made tokens");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_many_pools_are_bounded() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert_eq!(listed(&["a"; 7]), "a, a, a, a, a and 2 more");
    }
}
