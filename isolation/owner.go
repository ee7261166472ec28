package isolation

// Owner is one who holds leases: a key, the class its work has, and the
// account kept under that key. Two Owners with the same key share the account.
// Owners are issued by a [Provider], belong to it, and may be kept as long as
// their connection or session lives; keeping one costs no room in the owner
// table, holding a lease does.
type Owner struct {
	provider *Provider
	key      string
	class    Class
	trusted  int   // index in Plan.Trusted; -1 for all others
	only     Stage // the one stage it may use when limited
	limited  bool
	weight   int
	account  *account // guarded by Provider.mu; may be out of the table
}

// Key returns the owner's key. It is for comparison, not for logs or labels.
func (o *Owner) Key() string { return o.key }

// Class returns the owner's class.
func (o *Owner) Class() Class { return o.class }

// Weight returns the owner's weight in the request queue, at least 1.
func (o *Owner) Weight() int { return o.weight }

// counts is the class the owner counts as in the owner table: one that is
// limited to a stage only borrows its class, and fills no place kept for it.
func (o *Owner) counts() Class {
	if o.limited {
		return Established
	}
	return o.class
}

// account is what one key holds.
type account struct {
	key     string
	trusted int
	used    [lanes]int64
	floor   [Stages]int64 // used of a trusted owner's own floor
	leases  int           // live leases, all classes
	classes [Classes]int  // live leases by the class they were taken with
	listed  bool          // stands in Provider.idle
	tabled  bool          // stands in Provider.accounts
}

// present reports whether the account counts in the owner table.
func (a *account) present() bool { return a.leases > 0 }

// only class reports whether all leases were taken with class c.
func (a *account) exactly(c Class) bool { return a.classes[c] > 0 && a.classes[c] == a.leases }
