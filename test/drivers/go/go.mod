module drivers

go 1.21
