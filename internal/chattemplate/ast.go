package chattemplate

// An expr computes a value, a stmt writes output or changes names. Both know
// the byte of the source where they stand. Trees are immutable once parsed.
type expr interface {
	eval(r *run) (any, error)
	position() int
}

type stmt interface {
	exec(r *run) error
	position() int
}

// node is the common part: the byte offset in the source.
type node struct{ pos int }

func (n node) position() int { return n.pos }

// Expressions.
type (
	constExpr struct {
		node
		value any
	}
	nameExpr struct {
		node
		name string
	}
	tupleExpr struct {
		node
		items []expr
	}
	listExpr struct {
		node
		items []expr
	}
	dictExpr struct {
		node
		keys, values []expr
	}
	attrExpr struct {
		node
		object expr
		name   string
	}
	itemExpr struct {
		node
		object, index expr
	}
	sliceExpr struct {
		node
		object, start, stop, step expr // bounds may be nil
	}
	unaryExpr struct {
		node
		op      string // "-", "+", "not"
		operand expr
	}
	binaryExpr struct {
		node
		op          string
		left, right expr
	}
	// logicExpr is a short-circuit and/or.
	logicExpr struct {
		node
		or          bool
		left, right expr
	}
	// concatExpr is a ~ b ~ c.
	concatExpr struct {
		node
		parts []expr
	}
	// compareExpr is a < b <= c ...
	compareExpr struct {
		node
		first expr
		ops   []string
		rest  []expr
	}
	condExpr struct {
		node
		test, yes, no expr // no may be nil
	}
	callExpr struct {
		node
		callee expr
		args   callArgs
	}
	filterExpr struct {
		node
		operand expr // the name blockText in blocks
		name    string
		fn      filterFunc // nil: unknown, an error when reached
		args    callArgs
	}
	testExpr struct {
		node
		operand expr
		name    string
		fn      testFunc // nil: unknown, an error when reached
		args    callArgs
	}
)

// callArgs are the arguments as written: f(pos..., name=value..., *star, **starStar).
type callArgs struct {
	pos            []expr
	names          []string
	named          []expr
	star, starStar expr
}

// Statements.
type (
	dataStmt struct {
		node
		text *text
	}
	printStmt struct {
		node
		value expr
	}
	ifStmt struct {
		node
		tests  []expr
		bodies [][]stmt // one more than tests where there is an else
	}
	forStmt struct {
		node
		target    target
		iter      expr
		filter    expr // may be nil
		body      []stmt
		otherwise []stmt
		recursive bool
	}
	setStmt struct {
		node
		target target
		value  expr
	}
	setBlockStmt struct {
		node
		target target
		filter expr // over blockText, or nil
		body   []stmt
	}
	withStmt struct {
		node
		targets []target
		values  []expr
		body    []stmt
	}
	scopeStmt struct { // block, generation: a scope of its own
		node
		body []stmt
	}
	filterStmt struct {
		node
		filter expr
		body   []stmt
	}
	macroStmt struct {
		node
		name string
		fn   *macroDef
	}
	callStmt struct {
		node
		call   *callExpr
		caller *macroDef
	}
	breakStmt    struct{ node }
	continueStmt struct{ node }
)

// macroDef is the code of a macro or of a call block's body.
type macroDef struct {
	name       string
	params     []string
	defaults   []expr // of the last len(defaults) parameters
	body       []stmt
	usesCaller bool
	usesArgs   bool // varargs
	usesKwargs bool
}

// target is what an assignment assigns to: a name, an attribute of a
// namespace, or a tuple of targets.
type target struct {
	pos   int
	name  string
	attr  string
	items []target // set for a tuple
	tuple bool
}
