// cargo wants a library here.
