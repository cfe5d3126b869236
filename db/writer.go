package db

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/odometer-metering/odometer/metering"
)

// Writer stores events. One transaction holds the claims on their keys, the
// events and what they add to every rollup; Ingest returns after COMMIT.
// Requests of one tenant that arrive while a transaction is written become its
// next one, without a timer: single events get the speed of batches.
type Writer struct {
	store   *DB
	options WriterOptions
	chunks  *chunks

	customers *lru.Cache[customerName, knownCustomer]
	types     *lru.Cache[typeName, struct{}]
	groups    *lru.Cache[groupName, struct{}]
	meters    *lru.Cache[metering.TenantID, meterVersions]
	erasures  *lru.Cache[metering.TenantID, int64] // up to which the others are true

	mu      sync.Mutex
	lanes   map[metering.TenantID]*lane
	closed  bool
	running sync.WaitGroup
}

// WriterOptions bounds a Writer. Zero values take the defaults.
type WriterOptions struct {
	Uncounted *UncountedSampler // samples the stored events that a meter cannot count; nil: no sample is kept

	GroupEvents int           // in one transaction; 5,000. With 1, every request has a transaction of its own
	Lanes       int           // groups of one tenant that are written at once; 2. As many more may wait for COMMIT
	Deadline    time.Duration // for a request's way into the database, retries included; 20 s
}

func (o WriterOptions) withDefaults() WriterOptions {
	o.GroupEvents = cmp.Or(o.GroupEvents, 5000)
	o.Lanes = cmp.Or(o.Lanes, 2)
	o.Deadline = cmp.Or(o.Deadline, 20*time.Second)
	return o
}

// Entries of the caches, each some hundred bytes.
const (
	cachedCustomers = 30_000
	cachedTypes     = 10_000
	cachedGroups    = 30_000
	cachedTenants   = 1_000
)

type (
	customerName struct {
		tenant     metering.TenantID
		externalID string
	}
	knownCustomer struct {
		id    metering.CustomerID
		since time.Time // when it was created
	}
	typeName struct {
		tenant    metering.TenantID
		eventType string
	}
	// meterVersions are the ways of counting that ingest feeds, by event type, as
	// of one epoch of the tenant.
	meterVersions struct {
		epoch    int64
		byType   map[string][]metering.MeterVersion
		slugs    map[metering.MeterID]string
		archived map[string]string // the slug of an archived meter, by event type
	}
)

// lane is a tenant's queue in this process.
type lane struct {
	queue    []*request
	events   int // in the queue
	writing  int // groups that are being written
	underWay int // these, and those that wait for COMMIT
}

type request struct {
	events   []metering.Event
	outcomes []Outcome
	err      error
	done     chan struct{}
}

// Outcome is the outcome of one event. Its zero value: stored and counted. A settled reservation
// stores the outcomes of its events as JSON.
type Outcome struct {
	Duplicate bool `json:"duplicate,omitempty"` // its key was known: it adds nothing
	Conflict  bool `json:"conflict,omitempty"`  // its key is known with other content: it adds nothing
	Refused   bool `json:"refused,omitempty"`   // it is such a conflict, and the tenant rejects those
	Unkept    bool `json:"unkept,omitempty"`    // it is such a conflict, and is not stored: the tenant has maxConflicts already
	Unmetered bool `json:"unmetered,omitempty"` // no meter counts its type
	Forgotten bool `json:"forgotten,omitempty"` // rejected: it is older than its key would have been known for

	Archived  string          `json:"archived,omitempty"`  // the slug of an archived meter of its type, if it is Unmetered
	Ungrouped []string        `json:"ungrouped,omitempty"` // properties that a meter of its type groups by, and it does not have
	LongKeys  []string        `json:"long_keys,omitempty"` // slugs of the meters that count the event in OtherGroup, because its group's key is too long
	Crowded   []string        `json:"crowded,omitempty"`   // slugs of the meters that count the event in OtherGroup, because they have metering.MaxGroupsPerMeter groups already
	Early     []string        `json:"early,omitempty"`     // slugs of the meters that count the event, if it is older than its customer and the tenant bills
	Negative  []string        `json:"negative,omitempty"`  // slugs of the meters that count the event as 1 although its value is negative
	Unread    []UnreadValue   `json:"unread,omitempty"`
	Unusable  []UnusableValue `json:"unusable,omitempty"`
}

// UnreadValue names a meter that counts an event by a property, although its value is negative.
type UnreadValue struct {
	MeterSlug string `json:"meter_slug"`
	Property  string `json:"property"`
}

// UnusableValue is the value of an event that a meter would count, and cannot.
type UnusableValue struct {
	MeterSlug string           `json:"meter_slug,omitempty"`
	Property  string           `json:"property,omitempty"` // value_property of the meter
	Rule      metering.Verdict `json:"rule,omitempty"`     // ValueMissing or ValueInvalid
}

// noteUncounted notes that a meter would count the event if its value was usable, and reports
// whether that is the reason for the verdict.
func (o *Outcome) noteUncounted(slug string, g metering.MeterVersion, verdict metering.Verdict) (unusable bool) {
	if verdict == metering.FilteredOut {
		return false
	}
	o.Unusable = append(o.Unusable, UnusableValue{slug, g.ValueProperty, verdict})
	return true
}

// NewWriter makes a Writer over store.
func NewWriter(store *DB, options WriterOptions) *Writer {
	return &Writer{
		store:     store,
		options:   options.withDefaults(),
		chunks:    newChunks(store.pool),
		customers: newCache[customerName, knownCustomer](cachedCustomers),
		types:     newCache[typeName, struct{}](cachedTypes),
		groups:    newCache[groupName, struct{}](cachedGroups),
		meters:    newCache[metering.TenantID, meterVersions](cachedTenants),
		erasures:  newCache[metering.TenantID, int64](cachedTenants),
		lanes:     make(map[metering.TenantID]*lane),
	}
}

// forgetErased forgets what is known of customers and groups where one of the
// tenant's was erased since, and says whether it was.
func (w *Writer) forgetErased(tenant metering.TenantID, erasures int64) bool {
	if known, _ := w.erasures.Get(tenant); known == erasures {
		return false
	}
	w.customers.Purge()
	w.groups.Purge()
	w.erasures.Add(tenant, erasures)
	return true
}

func newCache[K comparable, V any](size int) *lru.Cache[K, V] {
	cache, err := lru.New[K, V](size)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	return cache
}

// Ingest stores the tenant's events and returns one outcome per event, after
// COMMIT. On an error nothing was stored, but for CodeUnavailable with a lost
// COMMIT, whose message says so. When ctx ends first, the events may still be
// stored.
func (w *Writer) Ingest(ctx context.Context, tenant metering.TenantID, events []metering.Event) ([]Outcome, error) {
	r := &request{events: events, done: make(chan struct{})}
	if err := w.enqueue(tenant, r); err != nil {
		return nil, err
	}
	select {
	case <-r.done:
		return r.outcomes, r.err
	case <-ctx.Done():
		return nil, metering.Errorf(metering.CodeUnavailable, "the request ended before its events were stored").Because(ctx.Err())
	}
}

// Close waits until every accepted request is answered.
func (w *Writer) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}

var errStopping = metering.Errorf(metering.CodeUnavailable, "the service is stopping; try again")

// begin has Close wait until the caller calls w.running.Done.
func (w *Writer) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errStopping
	}
	w.running.Add(1)
	return nil
}

func (w *Writer) enqueue(tenant metering.TenantID, r *request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errStopping
	}
	l, ok := w.lanes[tenant]
	if !ok {
		l = new(lane)
		w.lanes[tenant] = l
	}
	l.queue, l.events = append(l.queue, r), l.events+len(r.events)
	w.dispatch(tenant, l)
	return nil
}

// crowd is how many events that wait are stored beside others that are being written.
// Fewer wait until those are sent to COMMIT, so that they share a transaction with what
// comes meanwhile: writing is work, and COMMIT is mostly waiting for a disk.
const crowd = 1000

// dispatch begins groups as far as the tenant may. The caller holds w.mu.
func (w *Writer) dispatch(tenant metering.TenantID, l *lane) {
	for len(l.queue) > 0 && l.underWay < 2*w.options.Lanes &&
		(l.writing == 0 || l.writing < w.options.Lanes && l.events >= min(crowd, w.options.GroupEvents)) {
		group := w.next(l)
		l.writing++
		l.underWay++
		w.running.Add(1)
		go w.drain(tenant, l, group)
	}
	if l.underWay == 0 {
		delete(w.lanes, tenant)
	}
}

// drain stores a group, and begins the next ones once it is written and once it is answered.
func (w *Writer) drain(tenant metering.TenantID, l *lane, group []*request) {
	defer w.running.Done()
	written := sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		l.writing--
		w.dispatch(tenant, l)
	})
	w.storeGroup(tenant, group, written)
	written()
	w.mu.Lock()
	defer w.mu.Unlock()
	l.underWay--
	w.dispatch(tenant, l)
}

// next takes the next group from the queue. The caller holds w.mu.
func (w *Writer) next(l *lane) []*request {
	n, events := 0, 0
	for n < len(l.queue) && (n == 0 || events+len(l.queue[n].events) <= w.options.GroupEvents) {
		events += len(l.queue[n].events)
		n++
	}
	group := slices.Clone(l.queue[:n])
	l.queue, l.events = slices.Delete(l.queue, 0, n), l.events-events
	return group
}

// storeGroup answers every request of a group. A group that fails for a reason
// of its content is run again one request per transaction, so that a poisoned
// request harms nobody else.
func (w *Writer) storeGroup(tenant metering.TenantID, group []*request, written func()) {
	ctx, cancel := context.WithTimeout(For(context.Background(), tenant), w.options.Deadline)
	defer cancel()
	var events []metering.Event
	for _, r := range group {
		events = append(events, r.events...)
	}
	outcomes, err := w.persist(ctx, tenant, events, nil, written)
	if err != nil && len(group) > 1 && metering.CodeOf(err) == metering.CodeInternal {
		for _, r := range group {
			w.storeGroup(tenant, []*request{r}, written)
		}
		return
	}
	for _, r := range group {
		if r.err = err; err == nil {
			r.outcomes, outcomes = outcomes[:len(r.events)], outcomes[len(r.events):]
		}
		close(r.done)
	}
}
