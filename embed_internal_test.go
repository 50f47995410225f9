package minfer

import (
	"context"
	"math"
	"testing"

	"github.com/minfer/minfer/alloc"
	"github.com/minfer/minfer/graph"
	"github.com/minfer/minfer/sched"
)

// hiddenRows evaluates tokens by hand, in a graph of its own on the model's devices.
func hiddenRows(t *testing.T, m *Model, tokens []Token) [][]float32 {
	t.Helper()
	g, err := m.Graph(graph.Params{Tokens: len(tokens), Outputs: len(tokens), Cells: len(tokens), Result: graph.Hidden})
	if err != nil {
		t.Fatal(err)
	}
	a := alloc.New(m.engine.devices)
	defer a.Close()
	p, err := sched.Prepare(g, a)
	if err != nil {
		t.Fatal(err)
	}
	count := make([]int32, len(tokens))
	for i := range count {
		count[i] = int32(i)
	}
	for name, data := range map[string][]int32{"token_ids": tokens, "positions": count, "cells": count} {
		if err := p.WriteInput(name, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Execute(context.Background()); err != nil {
		t.Fatal(err)
	}
	rows := make([][]float32, len(tokens))
	for i := range rows {
		rows[i] = make([]float32, m.hyper.Embedding)
		if err := p.ReadOutput(0, i, rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

// Embeddings are what a graph gives that is executed by hand and pooled by the book.
func TestEmbedByHand(t *testing.T) {
	m := openInternal(t)
	tokens := mustEncode(t, m, "The fox lived in a forest near Rome.")
	rows := hiddenRows(t, m, tokens)
	n := len(rows)
	for pooling, value := range map[Pooling]func(i int) float64{
		PoolDefault: func(i int) float64 { return float64(rows[n-1][i]) },
		PoolLast:    func(i int) float64 { return float64(rows[n-1][i]) },
		PoolFirst:   func(i int) float64 { return float64(rows[0][i]) },
		PoolMean: func(i int) (sum float64) {
			for _, row := range rows {
				sum += float64(row[i])
			}
			return sum / float64(n)
		},
	} {
		raw, err := m.EmbedTokens(context.Background(), [][]Token{tokens}, WithPooling(pooling), WithoutNormalization())
		if err != nil {
			t.Fatal(err)
		}
		unit, err := m.EmbedTokens(context.Background(), [][]Token{tokens}, WithPooling(pooling))
		if err != nil {
			t.Fatal(err)
		}
		squares, length := 0.0, 0.0
		for i := range m.hyper.Embedding {
			if want := float32(value(i)); raw[0][i] != want {
				t.Errorf("%v: [%d] is %v, want %v", pooling, i, raw[0][i], want)
			}
			squares += value(i) * value(i)
			length += float64(unit[0][i]) * float64(unit[0][i])
		}
		for i, x := range unit[0] {
			if want := value(i) / math.Sqrt(squares); math.Abs(float64(x)-want) > 1e-7 {
				t.Errorf("%v: normalised [%d] is %v, want %v", pooling, i, x, want)
			}
		}
		if math.Abs(length-1) > 1e-6 {
			t.Errorf("%v: length %v", pooling, math.Sqrt(length))
		}
	}
}
