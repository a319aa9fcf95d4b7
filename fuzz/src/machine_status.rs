//! Objects of machines in a cluster, as anybody with the right may have written their status, and what a server learns from
//! them: an input's lines are versions of one object. `@a` to `@d` stand for hashes of tokens.

use std::time::Duration;

use super::{NOW, expanded};
use model::access::Token;
use model::access::machine::{
    ClockReading, MAX_ADDRESSES, MachineState, MachineStatus, RecordedUse, Stage, Usage, Window,
};

fn word(letter: u8) -> Option<String> {
    let number = letter.checked_sub(b'a').filter(|number| *number < 4)?;
    let hash = serde_json::to_value(Token::new([number; 32]).hash()).expect("JSON");
    hash.as_str().map(str::to_owned)
}

fn learned<'a>(uses: impl Iterator<Item = &'a RecordedUse>) -> Usage {
    let mut usage = Usage::default();
    uses.for_each(|it| usage.learn(it));
    usage
}

/// Judges one input.
pub fn run(data: &[u8]) {
    let text = expanded(data, word);
    let Ok(text) = str::from_utf8(&text) else { return };
    let mut uses = Vec::new();
    for line in text.lines().take(4) {
        let Ok(state) = MachineState::read(line) else { continue };
        let Some(status) = state.status else { continue };
        let written = serde_json::to_value(&status);
        if let Ok(written) = written {
            let again: MachineStatus = serde_json::from_value(written).expect("what was written");
            assert_eq!(again, status);
        }
        uses.extend(status.recorded);
    }
    let now = ClockReading { wall: NOW, up: Duration::from_secs(9) };
    let window = Window::default();
    let usage = learned(uses.iter());
    assert!(usage.addresses().len() <= MAX_ADDRESSES);
    let stage = usage.stage(window, now);
    // Servers see the versions in different orders, and some twice.
    assert_eq!(learned(uses.iter().rev()).stage(window, now), stage);
    assert_eq!(learned(uses.iter().chain(&uses)), usage);
    if uses.iter().any(|it| it.spent) {
        assert_eq!(stage, Stage::Spent);
    }
    if let Some(recorded) = usage.record(window) {
        assert_eq!(learned([&recorded].into_iter()).stage(window, now), stage);
    }
}
