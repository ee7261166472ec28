package service

// Limits bounds the operations of one request. The server announces the same
// numbers under Server/ServerCapabilities. A zero field takes the default, a
// negative one means no limit of its own (message sizes still bound it).
type Limits struct {
	MaxNodesPerRead                          int // default 10,000
	MaxNodesPerWrite                         int // default 10,000
	MaxNodesPerMethodCall                    int // default 1,000: bounds the work of one Call message
	MaxNodesPerBrowse                        int // default 10,000
	MaxNodesPerRegisterNodes                 int // default 10,000
	MaxNodesPerTranslateBrowsePathsToNodeIDs int // default 10,000
	MaxMonitoredItemsPerCall                 int // default 10,000
	MaxSubscriptionsPerCall                  int // subscription ids in one request; default 10,000
	MaxReferencesPerNode                     int // references of one Browse result, the rest behind a continuation point; default 10,000
	MaxBrowseContinuationPoints              int // per session; the oldest gives way; default 50
	MaxRelativePathElements                  int // of one browse path; default 100
	MaxPathTargets                           int // results of one browse path; default 1,000
	MaxPathSteps                             int // references looked at by one TranslateBrowsePathsToNodeIds; default 1,000,000
	MaxMethodArguments                       int // input arguments of one method; default 1,000
}

// WithDefaults returns a copy in which each field holds the number in force, 0
// meaning no limit.
func (l Limits) WithDefaults() Limits {
	for _, f := range []struct {
		p   *int
		def int
	}{
		{&l.MaxNodesPerRead, 10_000},
		{&l.MaxNodesPerWrite, 10_000},
		{&l.MaxNodesPerMethodCall, 1_000},
		{&l.MaxNodesPerBrowse, 10_000},
		{&l.MaxNodesPerRegisterNodes, 10_000},
		{&l.MaxNodesPerTranslateBrowsePathsToNodeIDs, 10_000},
		{&l.MaxMonitoredItemsPerCall, 10_000},
		{&l.MaxSubscriptionsPerCall, 10_000},
		{&l.MaxReferencesPerNode, 10_000},
		{&l.MaxBrowseContinuationPoints, 50},
		{&l.MaxRelativePathElements, 100},
		{&l.MaxPathTargets, 1_000},
		{&l.MaxPathSteps, 1_000_000},
		{&l.MaxMethodArguments, 1_000},
	} {
		switch {
		case *f.p == 0:
			*f.p = f.def
		case *f.p < 0:
			*f.p = 0
		}
	}
	return l
}
