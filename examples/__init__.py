"""Four agents on LangGraph, one for each thing that a destination can do after a crash."""
