//! Everything that a rotation depends on, in memory, changed one write at a time; and the machines
//! that were handed pointer configs, for ever.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ignition::{SpecVersion, pointer};
use model::pointer_config::PointerConfig;
use pki::issue::{Signer, Validity, issue_ca, issue_serving};
use pki::{
    Certificate, CertificateState, Host, KeyAlgorithm, MAX_CHAIN_BYTES, MAX_STEPS, NextAction,
    Policy, Reason, RotationRequest, Step, StoredPair, TrustHolder, Warning, Write, locked_out,
    next,
};
use time::{Duration, OffsetDateTime};

pub(super) const START: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);
/// A name that a test can really ask for.
pub(crate) const HOST: &str = "localhost";
pub(super) const YEAR: Duration = Duration::days(365);

/// All that is stored, changed one write at a time.
#[derive(Clone)]
pub(crate) struct World {
    pub(super) stored: CertificateState,
    pub(super) pointers: Vec<Vec<u8>>,
    /// What texts of pointer configs say, each read once; what a copy reads, the others know.
    pub(super) read: Rc<RefCell<BTreeMap<Vec<u8>, Vec<TrustHolder>>>>,
    /// The pointer configs that machines hold, each once.
    pub(super) handed: Vec<TrustHolder>,
    pub(crate) now: OffsetDateTime,
    pub(super) policy: Policy,
    /// How many states there were, one after each write.
    pub(crate) states: u64,
    /// What was told when all that is due was done.
    pub(super) attention: Vec<Warning>,
    /// The CAs that nobody should trust any more.
    pub(super) distrusted: Vec<Certificate>,
    /// Others that judge what is served, after each write.
    pub(super) other_judge: Option<fn(&World)>,
}

pub(super) fn host() -> Host {
    HOST.parse().expect("a host")
}

pub(super) fn key() -> rcgen::KeyPair {
    KeyAlgorithm::P256.generate().expect("a key")
}

/// A CA with its key.
pub(super) struct OwnCa {
    pub(super) certificate: Certificate,
    pub(super) key: rcgen::KeyPair,
}

impl OwnCa {
    pub(super) fn new(now: OffsetDateTime) -> Self {
        let key = key();
        let certificate = issue_ca(&key, 10 * YEAR, now).expect("an authority");
        Self { certificate, key }
    }

    /// A CA that another tool makes.
    pub(super) fn with(
        now: OffsetDateTime,
        change: impl FnOnce(&mut rcgen::CertificateParams),
    ) -> Self {
        let key = key();
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        let serial = now.unix_timestamp().to_string();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Example");
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("own CA {serial}"));
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_before = now - YEAR;
        params.not_after = now + 20 * YEAR;
        change(&mut params);
        let issued = params.self_signed(&key).expect("an authority");
        let certificate = Certificate::from_der(issued.der()).expect("a certificate");
        Self { certificate, key }
    }

    pub(super) fn stored(&self) -> StoredPair {
        StoredPair {
            certificates: self.certificate.to_pem().into(),
            key: self.key.serialize_pem().into(),
            ..StoredPair::default()
        }
    }

    /// A serving pair for these hosts, valid a while from `now` on.
    pub(super) fn pair(&self, hosts: &[Host], now: OffsetDateTime, valid: Duration) -> StoredPair {
        let own = key();
        let validity = Validity { begin: now - Duration::DAY, end: now + valid };
        let signer = Signer { certificate: &self.certificate, key: &self.key };
        let leaf = issue_serving(&own, hosts, signer, validity).expect("a pair");
        StoredPair {
            certificates: leaf.to_pem().into(),
            key: own.serialize_pem().into(),
            ..StoredPair::default()
        }
    }
}

impl World {
    pub(super) fn fresh(now: OffsetDateTime) -> Self {
        Self {
            stored: CertificateState { hosts: vec![host()], ..CertificateState::default() },
            pointers: Vec::new(),
            read: Rc::default(),
            handed: Vec::new(),
            now,
            policy: Policy::default(),
            states: 0,
            attention: Vec::new(),
            distrusted: Vec::new(),
            other_judge: None,
        }
    }

    /// An installation whose authority is known by its certificate alone.
    pub(super) fn with_root(now: OffsetDateTime) -> (Self, Certificate) {
        let mut world = Self::fresh(now);
        let root = OwnCa::new(now - YEAR);
        world.stored.root_ca = Some(root.certificate.to_pem().into());
        world.stored.serving = Some(root.pair(&[host()], now - YEAR, 10 * YEAR));
        world.pointers = vec![pointer_config(std::slice::from_ref(&root.certificate))];
        world.hand_out();
        (world, root.certificate)
    }

    /// One that has been brought in order.
    pub(super) fn settled(now: OffsetDateTime) -> Self {
        let mut world = Self::fresh(now);
        world.settle();
        world
    }

    pub(super) fn bundle(&self) -> Vec<Certificate> {
        Certificate::read_all(self.stored.bundle.as_deref().unwrap_or_default())
    }

    pub(crate) fn chain(&self) -> Vec<Certificate> {
        self.stored.chain()
    }

    /// The pair that is served, if that can be.
    pub(crate) fn serving(&self) -> Option<&StoredPair> {
        let pair = self.stored.serving.as_ref()?;
        let key = rcgen::KeyPair::from_pem(str::from_utf8(&pair.key).ok()?).ok()?;
        self.chain().first()?.matches(&key).then_some(pair)
    }

    fn known(&self) -> Vec<Certificate> {
        let roots = self.stored.root_ca.as_deref().unwrap_or_default();
        let stored = self.stored.ca.iter().flat_map(StoredPair::cas);
        Certificate::read_all(roots).into_iter().chain(stored).collect()
    }

    /// What the next plan sees: all of it is stored, nothing is remembered.
    pub(super) fn observe(&mut self) {
        let (bundle, known) = (self.bundle(), self.known());
        let pointers = self.pointers.iter().enumerate();
        self.stored.pointers = pointers
            .map(|(index, text)| {
                let (config, name) = (PointerConfig::read(text), index.to_string());
                config.trust(&name, &name, config.assess(&bundle, &known))
            })
            .collect();
    }

    /// What comes next, with nothing done.
    pub(super) fn next(&mut self) -> NextAction {
        self.observe();
        let algorithm = self.policy.algorithm;
        let mut keys = 0;
        let next = next(&self.stored, &self.policy, self.now, &mut |_| {
            keys += 1;
            algorithm.generate()
        });
        let next = next.expect("certificates that can be issued");
        // A world that is settled looks often, and some keys take seconds.
        assert!(
            keys == 0 || matches!(next, NextAction::Step { .. }),
            "a key that nobody gets: {next:?}"
        );
        next
    }

    /// The step that comes next.
    pub(super) fn step(&mut self) -> Option<Step> {
        match self.next() {
            NextAction::Step { step, .. } => Some(step),
            NextAction::Settled { .. } => None,
        }
    }

    /// At most so many writes of the next step, as a process makes them that dies after the last.
    /// Returns the step, `None` when all is in order.
    pub(super) fn advance(&mut self, most: usize) -> Option<Step> {
        match self.next() {
            NextAction::Settled { until, attention, .. } => {
                assert!(until > self.now, "a look that is due at once, with nothing to do");
                self.attention = attention;
                None
            }
            NextAction::Step { step, writes } => {
                assert!(!writes.is_empty(), "{step:?}");
                for write in writes.iter().take(most) {
                    self.apply(&step, write);
                }
                Some(step)
            }
        }
    }

    fn apply(&mut self, step: &Step, write: &Write) {
        let before = self.chain();
        let mut damaged = None;
        match write.clone() {
            Write::Ca(pair) | Write::Store(pair) => self.stored.ca = Some(pair),
            Write::Bundle(pem) => self.stored.bundle = Some(pem.into()),
            Write::Pointer { name, text } => {
                let index: usize = name.parse().expect("an index");
                let old = std::mem::replace(&mut self.pointers[index], text.clone());
                let [old, new] = [old, text].map(|text| self.holders_by(&text));
                let boots =
                    |holders: &[TrustHolder]| locked_out(&before, holders, self.now).is_empty();
                damaged = (!boots(&new) && !old.is_empty() && boots(&old)).then_some(name);
            }
            Write::Serving(pair) => self.stored.serving = Some(pair),
        }
        if let (Write::Ca(pair) | Write::Store(pair), Some(issuer)) =
            (write, &mut self.stored.issuer)
        {
            issuer.has_issued = pair.is_issued_by_another();
        }
        self.stored.requested = write.leaves(&self.stored.requested);
        self.states += 1;
        self.hand_out();
        assert_eq!(damaged, None, "a pointer config that booted, and does not as it was written");
        let is_forced =
            self.stored.requested.force || matches!(step, Step::Serving(Reason::Distrusted, _));
        let mut new = self.locked_out_by(&self.chain());
        if !new.is_empty() {
            let before = self.locked_out_by(&before);
            new.retain(|holder| !before.contains(holder));
        }
        assert!(
            new.is_empty() || is_forced,
            "at {}, {} writes in, {step:?} locks out {:?} by {:?}",
            self.now,
            self.states,
            self.locked_out(),
            self.chain(),
        );
        let bytes: usize = self.chain().iter().map(|it| it.der().len() + 5).sum();
        let is_ours = matches!(write, Write::Serving(_));
        assert!(!is_ours || bytes < MAX_CHAIN_BYTES, "{bytes} bytes are sent");
        if let Some(judge) = self.other_judge {
            judge(self);
        }
    }

    /// The machines with a pointer config.
    fn holders_by(&self, text: &[u8]) -> Vec<TrustHolder> {
        let mut read = self.read.borrow_mut();
        read.entry(text.to_vec()).or_insert_with(|| PointerConfig::read(text).holders("")).clone()
    }

    /// Machines take what pointer configs there are.
    pub(super) fn hand_out(&mut self) {
        let holders: Vec<_> = self.pointers.iter().flat_map(|it| self.holders_by(it)).collect();
        for mut holder in holders {
            holder.name = format!("pointer config {}", self.handed.len());
            let is_known = |known: &TrustHolder| {
                known.trusted == holder.trusted && known.hosts == holder.hosts
            };
            if !self.handed.iter().any(is_known) {
                self.handed.push(holder);
            }
        }
    }

    /// Those of which nothing says that they should not be trusted, and whose time is not over.
    pub(crate) fn holders(&self) -> Vec<TrustHolder> {
        let is_distrusted = |ca: &Certificate| self.distrusted.contains(ca);
        let holders = self.handed.iter().cloned().map(|mut holder| {
            holder.trusted.retain(|ca| !is_distrusted(ca));
            holder
        });
        holders.filter(|holder| holder.trusted.iter().any(|ca| ca.is_valid_at(self.now))).collect()
    }

    /// The machines that could not boot now, by their names.
    pub(super) fn locked_out(&self) -> BTreeSet<String> {
        let lockouts = locked_out(&self.chain(), &self.holders(), self.now);
        lockouts.into_iter().map(|lockout| lockout.to_string()).collect()
    }

    /// The same for what is or was served, by what they are called.
    pub(super) fn locked_out_by(&self, chain: &[Certificate]) -> BTreeSet<String> {
        let lockouts = locked_out(chain, &self.holders(), self.now);
        lockouts.into_iter().map(|lockout| lockout.holder).collect()
    }

    pub(super) fn settle(&mut self) {
        let mut steps = Vec::new();
        for _ in 0..MAX_STEPS {
            let step = self.advance(usize::MAX);
            let is_last = step.is_none();
            steps.extend(step);
            if is_last {
                if self.pointers.is_empty() && !self.bundle().is_empty() {
                    // The first pool's is made when there is something to trust.
                    self.pointers.push(pointer_config(&self.bundle()));
                    self.hand_out();
                }
                return;
            }
        }
        panic!("no end at {}: {:?}", self.now, &steps[MAX_STEPS - 4..]);
    }

    /// A rotation that an administrator asks for, to its end.
    pub(super) fn rotate(&mut self, ca: bool, force: bool) {
        self.stored.requested = RotationRequest { ca, serving: true, force, distrust: Vec::new() };
        self.settle();
        self.stored.requested = RotationRequest::default();
    }

    pub(super) fn distrust(&mut self, ca: &Certificate) {
        self.distrusted.push(ca.clone());
        self.stored.requested.distrust = vec![ca.fingerprint()];
        self.settle();
        self.stored.requested = RotationRequest::default();
    }
}

pub(super) fn pointer_config(trusted: &[Certificate]) -> Vec<u8> {
    let url = format!("https://{HOST}:22623/config/worker");
    let pem: String = trusted.iter().map(Certificate::to_pem).collect();
    pointer(&url, pem.as_bytes(), SpecVersion::V3_1).to_string().into_bytes()
}
