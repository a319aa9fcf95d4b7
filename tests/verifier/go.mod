// Judges certificate chains for the tests of the rules that say which machines could boot: see install.
module verifier

go 1.19
