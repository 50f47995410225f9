package storyteller_test

import (
	"context"
	"fmt"
	"log"

	"github.com/minfer/minfer"
	"github.com/minfer/minfer/examples/storyteller"
)

func Example() {
	model, err := minfer.OpenBytes(storyteller.Model)
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	session, err := model.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for piece, err := range session.Chat().Say(context.Background(), "What is 3 + 4?", minfer.Temperature(0)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
	}
	// Output: 3 plus 4 is 7.
}
