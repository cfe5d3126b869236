package usage

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Writer stores events. One transaction claims the idempotency keys, stores the events and adds their usage to the
// totals. Ingest returns after COMMIT. Requests of a tenant that arrive while a transaction is written share the next
// transaction. No timer delays requests, and single events are stored as fast as batches.
type Writer struct {
	store   Stores
	options WriterOptions
	chunks  *chunks

	customers *lru.Cache[customerEntry, catalog.KnownCustomer]
	types     *lru.Cache[typeName, struct{}]
	groups    *lru.Cache[groupEntry, struct{}]
	meters    *lru.Cache[metering.TenantID, meterVersions]
	erasures  *lru.Cache[metering.TenantID, int64] // the number of erasures that an attempt has read last

	mu      sync.Mutex
	lanes   map[metering.TenantID]*lane
	closed  bool
	running sync.WaitGroup
}

// WriterOptions bounds a Writer. Zero values take the defaults.
type WriterOptions struct {
	Uncounted *UncountedSampler // samples the stored events that a meter cannot count; nil for no samples

	GroupEvents int           // maximum number of events in a group of several requests, which is one transaction; default 5,000. With 1, every request is a group
	Lanes       int           // maximum number of groups of one tenant that are written at once; default 2. As many more may wait for COMMIT
	Deadline    time.Duration // time limit for storing a group, including retries; default 20 s
}

func (o WriterOptions) withDefaults() WriterOptions {
	o.GroupEvents = cmp.Or(o.GroupEvents, 5000)
	o.Lanes = cmp.Or(o.Lanes, 2)
	o.Deadline = cmp.Or(o.Deadline, 20*time.Second)
	return o
}

// Maximum number of entries of each cache. An entry has about 100 bytes.
const (
	cachedCustomers = 30_000
	cachedTypes     = 10_000
	cachedGroups    = 30_000
	cachedTenants   = 1_000
)

type (
	// CustomerName identifies a customer by its tenant and external ID.
	CustomerName struct {
		Tenant     metering.TenantID
		ExternalID string
	}
	typeName struct {
		tenant    metering.TenantID
		eventType string
	}
	// customerEntry and groupEntry are keys of cache entries. An attempt adds and reads only entries with its own
	// number of erasures. So an entry that is added after an erasure, but was looked up before it, is never read.
	customerEntry struct {
		CustomerName
		erasures int64
	}
	groupEntry struct {
		groupName
		erasures int64
	}
	// meterVersions has the meter versions to which ingest adds usage, by event type, as of an epoch of the
	// tenant.
	meterVersions struct {
		epoch    int64
		byType   map[string][]metering.MeterVersion
		slugs    map[metering.MeterID]string
		archived map[string]string // slug of an archived meter, by event type
	}
)

// lane is a tenant's queue of requests in this process. A group of requests is written in one transaction.
type lane struct {
	queue    []*request
	events   int // number of events in the queue
	writing  int // number of groups that are being written
	underWay int // number of groups that are being written or wait for COMMIT
}

type request struct {
	events   []metering.Event
	outcomes []Outcome
	err      error
	done     chan struct{}
}

// Outcome is the outcome of one event. Its zero value means stored and counted. A settled reservation
// stores the outcomes of its events as JSON.
type Outcome struct {
	Duplicate bool `json:"duplicate,omitempty"` // the key is known with the same content: the event adds nothing
	Conflict  bool `json:"conflict,omitempty"`  // the key is known with other content: the event adds nothing
	Refused   bool `json:"refused,omitempty"`   // the event is a conflict that the tenant rejects
	Unkept    bool `json:"unkept,omitempty"`    // the event is a conflict that is not stored, because the tenant has maxConflicts already
	Unmetered bool `json:"unmetered,omitempty"` // no meter counts the event's type
	Forgotten bool `json:"forgotten,omitempty"` // rejected: the event is so old that its key is no longer known

	Archived  string          `json:"archived,omitempty"`  // slug of an archived meter of the event's type, if Unmetered
	Ungrouped []string        `json:"ungrouped,omitempty"` // properties that a meter groups by and the event lacks
	LongKeys  []string        `json:"long_keys,omitempty"` // slugs of the meters that count the event in OtherGroup, because the key of its group is too long
	Crowded   []string        `json:"crowded,omitempty"`   // slugs of the meters that count the event in OtherGroup, because they have metering.MaxGroupsPerMeter groups already
	Early     []string        `json:"early,omitempty"`     // slugs of the meters that count the event, if the event is older than its customer and the tenant bills
	Negative  []string        `json:"negative,omitempty"`  // slugs of the meters that count the event as 1 although its value is negative
	Unread    []UnreadValue   `json:"unread,omitempty"`
	Unusable  []UnusableValue `json:"unusable,omitempty"`
}

// UnreadValue names a meter that counts an event by a property and ignores its negative value.
type UnreadValue struct {
	MeterSlug string `json:"meter_slug"`
	Property  string `json:"property"`
}

// UnusableValue names a meter that would count an event, and the rule that the event's value breaks.
type UnusableValue struct {
	MeterSlug string           `json:"meter_slug,omitempty"`
	Property  string           `json:"property,omitempty"` // value_property of the meter
	Rule      metering.Verdict `json:"rule,omitempty"`     // ValueMissing or ValueInvalid
}

// noteUncounted adds a meter to Unusable if the meter would count the event with a usable value. It reports
// whether it added the meter.
func (o *Outcome) noteUncounted(slug string, g metering.MeterVersion, verdict metering.Verdict) (unusable bool) {
	if verdict == metering.FilteredOut {
		return false
	}
	o.Unusable = append(o.Unusable, UnusableValue{slug, g.ValueProperty, verdict})
	return true
}

// NewWriter returns a Writer.
func (s Stores) NewWriter(options WriterOptions) *Writer {
	return &Writer{
		store:     s,
		options:   options.withDefaults(),
		chunks:    NewChunks(s.pool),
		customers: newCache[customerEntry, catalog.KnownCustomer](cachedCustomers),
		types:     newCache[typeName, struct{}](cachedTypes),
		groups:    newCache[groupEntry, struct{}](cachedGroups),
		meters:    newCache[metering.TenantID, meterVersions](cachedTenants),
		erasures:  newCache[metering.TenantID, int64](cachedTenants),
		lanes:     make(map[metering.TenantID]*lane),
	}
}

func newCache[K comparable, V any](size int) *lru.Cache[K, V] {
	cache, err := lru.New[K, V](size)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	return cache
}

// Ingest stores the tenant's events and returns one outcome per event, after COMMIT. If Ingest returns an error,
// nothing was stored, with two exceptions: the events may be stored if ctx ended first, or if the error is
// CodeUnavailable and mentions a lost COMMIT.
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

// begin makes Close wait until the caller calls w.running.Done. It fails once the Writer is closed.
func (w *Writer) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errStopping
	}
	w.running.Add(1)
	return nil
}

// enqueue adds a request to the tenant's lane and starts groups. It fails once the Writer is closed.
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

// crowd is the number of queued events from which a group is written while another group is still being written.
// Fewer events wait until the other group is sent to COMMIT, so that they share a transaction with later events.
// The reason is that writing costs CPU, whereas COMMIT mostly waits for a disk.
const crowd = 1000

// dispatch starts groups within the tenant's limits. The caller holds w.mu.
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

// drain stores a group. It starts the next groups when this group is sent to COMMIT, and again when the requests
// of this group are answered.
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

// next removes the next group from the queue and returns it. The caller holds w.mu.
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

// storeGroup stores a group in one transaction and answers its requests. If the group fails with CodeInternal, it
// stores each request in a separate transaction, so that an invalid request does not fail the other requests.
func (w *Writer) storeGroup(tenant metering.TenantID, group []*request, written func()) {
	ctx, cancel := context.WithTimeout(pg.For(context.Background(), tenant), w.options.Deadline)
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

// Queued returns the number of requests of the tenant that wait for a transaction.
func (w *Writer) Queued(tenant metering.TenantID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l, ok := w.lanes[tenant]; ok {
		return len(l.queue)
	}
	return 0
}
