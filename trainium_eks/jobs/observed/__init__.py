"""Jobs as the API server has them: of all kinds in the same terms, their surroundings, and the free capacity."""
